"""The search, with rates and a clock of our own"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from lightning_gpuaug.bench.tune import Search, Settings, axes, overlay, search

START = Settings("gpu", 0.75, 2, 2)


class Machine:
    """Rates by a formula; each measurement takes a second."""

    def __init__(self, rate: Callable[[Settings], float]) -> None:
        self.rate, self.now, self.asked = rate, 0.0, list[Settings]()

    def measure(self, settings: Settings) -> float:
        self.asked.append(settings)
        self.now += 1.0
        return self.rate(settings)


def searched(rate: Callable[[Settings], float], budget: float = 1e9, start: Settings = START) -> tuple[Search, Machine]:
    machine = Machine(rate)
    found = search(machine.measure, start, axes(start, True, True, 8), budget, lambda: machine.now)
    return found, machine


def test_finds_the_best_of_each_setting() -> None:
    def rate(s: Settings) -> float:
        return 1000 * (s.decode == "gpu") + 100 * s.hw_decoder_load + 10 * min(s.num_threads, 4) + s.prefetch

    # Of values within 3 % of each other the cheapest: threads and prefetch hardly matter here.
    assert searched(rate)[0].best == Settings("gpu", 1.0, 1, 2)

    def by_threads(s: Settings) -> float:
        return 100.0 * min(s.num_threads, 4) * (2 if s.decode == "cpu" else 1) * (1 + s.prefetch / 10)

    found, machine = searched(by_threads)
    assert found.best == Settings("cpu", found.best.hw_decoder_load, 4, 4)
    assert found.complete
    assert len(machine.asked) == len(set(machine.asked)) == len(found.trials)  # nothing is measured twice


def test_settings_that_help_only_together() -> None:
    """More threads pay only after decoding has moved to the CPU: the second round finds that."""

    def rate(s: Settings) -> float:
        return 50.0 + (40 if s.prefetch >= 3 else 0) + (100 * s.num_threads if s.prefetch >= 3 else 0)

    assert searched(rate)[0].best.num_threads == 8


@given(st.integers(0, 12), st.integers(0, 2**16))
def test_the_budget_is_kept_and_the_best_of_what_was_seen_taken(budget: int, seed: int) -> None:
    def rate(s: Settings) -> float:
        return 1.0 + hash((seed, s.decode == "gpu", s.hw_decoder_load, s.num_threads, s.prefetch)) % 1000

    found, machine = searched(rate, budget)
    assert machine.asked[0] == found.trials[0].settings == START
    assert machine.now <= max(1, budget)
    rates = {trial.settings: trial.img_per_s for trial in found.trials}
    assert rates[found.best] >= 0.97**8 * rates[START]  # never worse than the start, but for "as fast" choices
    assert found.complete or budget - machine.now < 1


def test_candidates_fit_the_machine() -> None:
    start = Settings("cpu", 1.0, 3, 5)
    found = axes(start, cuda=False, hardware=False, cores=6)
    assert found == {"num_threads": [1, 2, 3, 4, 6], "prefetch": [2, 3, 4, 5]}
    assert "hw_decoder_load" not in axes(start, cuda=True, hardware=False, cores=6)


def test_settings_that_were_not_searched_are_left_alone() -> None:
    text = overlay(Settings("cpu", 1.0, 4, 3), ["num_threads", "prefetch"], ["one", ""])
    assert text == "# one\n#\ndata:\n  num_threads: 4\n  prefetch: 3\n"
