"""From measured times to one sentence: what limits a run, which knob to turn, and what that gives. Arithmetic alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Cause = Literal["read", "decode", "augment", "transfer", "host", "input", "model"]
"""What a run is bound by; "input" is the pipeline where it is not known which part of it, "model" what is not input."""
INPUT_CAUSES: tuple[Cause, ...] = ("read", "decode", "augment", "transfer", "host", "input")

WORTH_IT = 0.05
"""Gains below this are not worth turning a knob for, and within what the figures vary."""


@dataclass(frozen=True)
class CheckUp:
    """What a check-up measured, per rank or averaged over ranks.

    Attributes:
        img_per_s: images per second of the run as it is.
        img_per_s_without_input: the same where no batch is waited for and none has to be moved to the device.
        wait_share: share of the run's time spent waiting for the loader, 0..1.
        transfer_share: share spent moving batches to the device, 0..1.
        stocked: whether the second figure was trained at, on batches laid in before; otherwise it is the first without
            the waits, and a lower bound.
        start_share: share of the run's time between the beginning of an epoch and its first batch, 0..1.
    """

    img_per_s: float
    img_per_s_without_input: float
    wait_share: float
    transfer_share: float
    stocked: bool
    start_share: float = 0.0

    @property
    def lost_share(self) -> float:
        """Share of the run's time that the input pipeline costs."""
        return max(0.0, 1.0 - self.img_per_s / self.img_per_s_without_input)


@dataclass(frozen=True)
class Knob:
    """A setting that could be turned.

    Attributes:
        name: of the setting.
        old: its value.
        new: the other value.
        speed_up: of the pipeline alone, measured: 1.4 makes 1.4 times as many images per second.
        saves_share: share of the run's time that it saves by itself, for knobs that do not speed the pipeline up.
    """

    name: str
    old: str
    new: str
    speed_up: float = 1.0
    saves_share: float = 0.0

    def __str__(self) -> str:
        """As in "num_workers 2 → 8"."""
        return f"{self.name} {self.old} → {self.new}"


@dataclass(frozen=True)
class Probe:
    """What short measurements beside the training found out about the input pipeline.

    Attributes:
        stages: seconds an image by cause, in the pipeline's own time; only their proportions matter.
        knobs: what was tried, the simplest first.
        advice: what to do about a cause when no knob helps, by cause.
        notes: sentences for the reader of a report.
    """

    stages: Mapping[str, float] = field(default_factory=dict)
    knobs: Sequence[Knob] = ()
    advice: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Verdict:
    """What limits a run and what to turn.

    Attributes:
        cause: what the run is bound by.
        text: the finding, one or two plain sentences.
        lost: share of the run's time lost to each part of the input pipeline.
        knob: the setting to change; None when there is nothing to turn.
        gain: images per second to be gained by it, 0.4 for +40 %; measured, or at most that where `measured` is False.
        measured: whether the gain was measured.
        img_per_s: as the run is.
        predicted_img_per_s: after the change.
        img_per_s_without_input: without the input pipeline.
        notes: further sentences.
    """

    cause: Cause
    text: str
    lost: dict[str, float]
    knob: str | None
    gain: float
    measured: bool
    img_per_s: float
    predicted_img_per_s: float
    img_per_s_without_input: float
    notes: tuple[str, ...] = ()


def losses(check: CheckUp, stages: Mapping[str, float], transfer_is: Cause = "transfer") -> dict[str, float]:
    """The share of the run's time that each part of the input pipeline costs; they add up to what is lost.

    The time waited goes to the stages in proportion to their own times. What was lost and not waited for is the
    host's (the pipeline's threads and the training loop share cores), and so is the starting of epochs.

    Args:
        check: what was measured.
        stages: seconds an image of the pipeline's stages.
        transfer_is: what the time between the loader and the step is spent on.
    """
    lost: dict[str, float] = {cause: 0.0 for cause in INPUT_CAUSES}
    waited, moved, started = check.wait_share, check.transfer_share, check.start_share
    total = check.lost_share
    known = waited + moved + started
    scale = min(1.0, total / known) if known > 0 else 0.0  # some of the waiting may cost nothing: it overlaps
    all_stages = sum(stages.values())
    for name, seconds in stages.items():
        lost[name] += waited * scale * (seconds / all_stages) if all_stages > 0 else 0.0
    if all_stages <= 0:
        lost["input"] += waited * scale
    lost[transfer_is] += moved * scale
    lost["host"] += started * scale + max(0.0, total - known * scale)
    return lost


def predict(check: CheckUp, knob: Knob) -> float:
    """Images per second after a knob is turned: the faster pipeline's, but no more than without any."""
    image, fastest = 1.0 / check.img_per_s, 1.0 / check.img_per_s_without_input
    # A faster pipeline does not start an epoch any sooner.
    running = (1.0 - check.start_share) * image
    sped_up = max(running / max(1.0, knob.speed_up), min(running, fastest)) + check.start_share * image
    saved = image * (1.0 - knob.saves_share)
    return 1.0 / max(fastest, min(sped_up, saved))


def judge(check: CheckUp, probe: Probe, transfer_is: Cause = "transfer") -> Verdict:
    """The verdict of a check-up.

    Args:
        check: what was measured.
        probe: what is known of the pipeline.
        transfer_is: what the time between the loader and the step is spent on.
    """
    now, free = check.img_per_s, check.img_per_s_without_input
    headroom = max(0.0, free / now - 1.0)
    lost = losses(check, probe.stages, transfer_is)

    def verdict(cause: Cause, text: str, knob: str | None, rate: float, measured: bool) -> Verdict:
        return Verdict(cause, text, lost, knob, rate / now - 1.0, measured, now, rate, free, tuple(probe.notes))

    if headroom < WORTH_IT:
        text = (
            f"model-bound: training runs at {now:,.0f} img/s and would at {free:,.0f} without its input pipeline. No "
            f"setting of the data gives more than {max(headroom, 0.01):.0%}; a faster model, precision or "
            "torch.compile would"
        )
        return verdict("model", text, None, max(now, free), measured=True)
    # What is lost without being waited for is a cause of its own only where it is most of the loss; else it is a
    # consequence: the stage that is too slow keeps the cores busy.
    elsewhere = [name for name in INPUT_CAUSES if name != "host" or lost["host"] > 0.5 * sum(lost.values())]
    cause: Cause = max(elsewhere, key=lambda name: lost[name])
    rates = [predict(check, knob) for knob in probe.knobs]
    best = max(rates, default=0.0)
    if best >= now * (1.0 + WORTH_IT):
        # The simplest of those that are about as good as the best.
        knob, rate = next((k, r) for k, r in zip(probe.knobs, rates, strict=True) if r >= 0.97 * best)
        limit = f"; {free:,.0f} without the input pipeline" if rate < 0.97 * free else ", as without the input pipeline"
        text = f"{cause}-bound: {knob} gives about +{rate / now - 1.0:.0%} ({now:,.0f} → {rate:,.0f} img/s{limit})"
        return verdict(cause, text, str(knob), rate, measured=True)
    advice = probe.advice.get(cause)
    text = (
        f"{cause}-bound: {advice or 'which setting helps is not known'}; that can give up to +{headroom:.0%} "
        f"({now:,.0f} → {free:,.0f} img/s, as without the input pipeline)"
    )
    return verdict(cause, text, advice, free, measured=False)
