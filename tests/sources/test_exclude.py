"""Exclusion lists: their formats, and what they leave out."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuaug.sources.exclude import excluded_names, kept, validated_exclude


def test_text_and_json_lists_say_the_same(tmp_path: Path) -> None:
    text, array = tmp_path / "bad.txt", tmp_path / "bad.JSON"
    text.write_bytes(b"\xef\xbb\xbf# found by a scan\r\nc/a.jpg\r\n\r\nshard.tar:b c\n")
    array.write_text('["c/a.jpg", "shard.tar:b c"]')
    for value in (text, array, ["c/a.jpg", "shard.tar:b c"]):
        assert excluded_names(validated_exclude(value, "X"), "X") == ("c/a.jpg", "shard.tar:b c")


@pytest.mark.parametrize("content", ["{", '{"a": 1}', '["a", 1]'])
def test_json_that_is_no_list_of_names(tmp_path: Path, content: str) -> None:
    (tmp_path / "l.json").write_text(content)
    with pytest.raises(ValueError, match=r"X\.exclude.*l\.json"):
        excluded_names(str(tmp_path / "l.json"), "X.exclude")


@pytest.mark.parametrize("value", [7, [1], None])
def test_what_is_no_exclusion_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="X must"):
        validated_exclude(value, "X")  # type: ignore[arg-type]


def test_kept_positions_and_a_warning_for_names_that_match_nothing() -> None:
    names = ["a", "b", "a", "c"]
    assert kept(iter(names), 4, (), "data") is None
    positions = kept(iter(names), 4, ("a",), "data")
    assert positions is not None
    assert positions.tolist() == [1, 3]
    with pytest.warns(UserWarning, match=r"1 of the excluded names match nothing in data, the first being 'z'"):
        positions = kept(iter(names), 4, ("z", "c"), "data")
    assert positions is not None
    assert positions.tolist() == [0, 1, 2]
