"""Arithmetic of the verdict: where the loss goes, what a knob gives, which one is named, in which words."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_gpuaug.callbacks.verdict import INPUT_CAUSES, CheckUp, Knob, Probe, judge, losses, predict

# A quarter of the headroom is used; the rest is waited for.
SLOW = CheckUp(1000.0, 4000.0, wait_share=0.75, transfer_share=0.0, stocked=True)
DECODES = {"read": 1.0, "decode": 8.0, "augment": 1.0}
shares = st.floats(0.0, 1.0)


@given(st.floats(1.0, 1e5), st.floats(1.0, 10.0), shares, shares,
       st.dictionaries(st.sampled_from(["read", "decode", "augment", "host"]), st.floats(0.0, 10.0)))  # fmt: skip
def test_losses_add_up_to_what_is_lost(rate: float, over: float, wait: float, part: float, stages: dict) -> None:
    check = CheckUp(rate, rate * over, wait, (1.0 - wait) * part, stocked=True)
    lost = losses(check, stages)
    assert set(lost) == set(INPUT_CAUSES)
    assert all(share >= 0.0 for share in lost.values())
    assert sum(lost.values()) == pytest.approx(check.lost_share, abs=1e-9)


def test_waits_go_to_the_stages_and_the_rest_to_the_host() -> None:
    check = CheckUp(1000.0, 2000.0, wait_share=0.3, transfer_share=0.1, stocked=True)
    lost = losses(check, DECODES)
    assert lost == pytest.approx(
        {"read": 0.03, "decode": 0.24, "augment": 0.03, "transfer": 0.1, "host": 0.1, "input": 0.0}
    )
    assert losses(check, DECODES, "augment")["augment"] == pytest.approx(0.13)
    assert losses(check, {})["input"] == pytest.approx(0.3)
    # Waits that cost nothing, for they lie beside other work, are not counted beyond what is lost.
    assert sum(losses(CheckUp(1000.0, 1100.0, 0.5, 0.0, True), DECODES).values()) == pytest.approx(1 / 11)


@given(st.floats(1.0, 100.0), st.floats(0.0, 0.99))
def test_no_knob_gives_more_than_the_headroom_or_less_than_nothing(speed_up: float, saves: float) -> None:
    rate = predict(SLOW, Knob("x", "1", "2", speed_up=speed_up, saves_share=saves))
    assert SLOW.img_per_s <= rate <= SLOW.img_per_s_without_input


def test_the_verdict_is_one_plain_sentence() -> None:
    knobs = [Knob("num_threads", "2", "4", speed_up=1.2), Knob("hw_decoder_load", "0.65", "1", speed_up=1.4)]
    verdict = judge(SLOW, Probe(DECODES, knobs))
    assert verdict.text == (
        "decode-bound: hw_decoder_load 0.65 → 1 gives about +40% (1,000 → 1,400 img/s; "
        "4,000 without the input pipeline)"
    )
    assert (verdict.cause, verdict.knob, verdict.measured) == ("decode", "hw_decoder_load 0.65 → 1", True)
    assert verdict.gain == pytest.approx(0.4)


def test_of_knobs_that_are_about_as_good_the_first_is_named() -> None:
    knobs = [Knob("num_threads", "2", "8", speed_up=3.95), Knob("decode", "cpu", "gpu", speed_up=20.0)]
    verdict = judge(SLOW, Probe(DECODES, knobs))
    assert verdict.knob == "num_threads 2 → 8"
    assert "as without the input pipeline" in verdict.text


def test_without_a_knob_that_helps_the_advice_is_an_upper_bound() -> None:
    probe = Probe(DECODES, [Knob("num_workers", "8", "9", speed_up=1.01)], {"decode": "switch to ImageDataModule"})
    verdict = judge(SLOW, probe)
    assert not verdict.measured
    assert verdict.text.startswith("decode-bound: switch to ImageDataModule; that can give up to +300%")
    assert verdict.knob == "switch to ImageDataModule"
    unknown = judge(SLOW, Probe())
    assert unknown.cause == "input"
    assert unknown.knob is None
    assert "not known" in unknown.text


def test_a_run_without_loss_is_bound_by_its_model() -> None:
    check = dataclasses.replace(SLOW, img_per_s=3900.0)
    verdict = judge(check, Probe(DECODES, [Knob("num_workers", "1", "8", speed_up=8.0)]))
    assert (verdict.cause, verdict.knob) == ("model", None)
    assert verdict.gain == pytest.approx(4000 / 3900 - 1)
    assert "gives more than 3%" in verdict.text


def test_the_host_is_a_cause_only_where_it_is_most_of_the_loss() -> None:
    def cause(wait: float) -> str:
        return judge(CheckUp(1000.0, 2000.0, wait, 0.0, stocked=True), Probe(DECODES)).cause

    assert cause(0.3) == "decode"  # 0.24 decoding, 0.2 that nobody waited for
    assert cause(0.2) == "host"


def test_starting_epochs_is_the_hosts_and_no_faster_pipeline_helps_it() -> None:
    # Half of the time goes into starting epochs, the rest runs at the model's rate.
    check = CheckUp(500.0, 1000.0, wait_share=0.0, transfer_share=0.0, stocked=True, start_share=0.5)
    assert losses(check, DECODES)["host"] == pytest.approx(0.5)
    workers = Knob("num_workers", "1", "8", speed_up=8.0)
    persistent = Knob("persistent_workers", "False", "True", saves_share=0.4)
    assert predict(check, workers) == pytest.approx(500.0)
    assert predict(check, persistent) == pytest.approx(500 / 0.6)
    assert judge(check, Probe(DECODES, [workers, persistent])).knob == "persistent_workers False → True"
