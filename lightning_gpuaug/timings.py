"""Where the making of batches spends its time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timings:
    """Sums over the batches that a loader has made, in seconds of the thread that makes them.

    Where DALI decodes on a GPU the host only hands work over, so these are the host's costs, not the GPU's.

    Attributes:
        batches: batches made.
        prepare: planning what is due: order, draws, windows, headers, feeding DALI.
        decode: waiting for DALI to have read and decoded a batch.
        finish: flip, augment, normalise, targets; with CPU decoding for a GPU, the copy to it.
    """

    batches: int = 0
    prepare: float = 0.0
    decode: float = 0.0
    finish: float = 0.0

    def plus(self, prepare: float, decode: float, finish: float) -> Timings:
        """With one batch more."""
        return Timings(self.batches + 1, self.prepare + prepare, self.decode + decode, self.finish + finish)

    def since(self, earlier: Timings) -> Timings:
        """What came after `earlier`."""
        return Timings(
            self.batches - earlier.batches,
            self.prepare - earlier.prepare,
            self.decode - earlier.decode,
            self.finish - earlier.finish,
        )
