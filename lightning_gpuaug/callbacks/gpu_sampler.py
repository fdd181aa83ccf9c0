"""A thread that reads one GPU's numbers at an interval and keeps them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from lightning_gpuaug.callbacks.nvml import Description, NvmlDevice, NvmlUnavailable, Reading
from lightning_gpuaug.callbacks.run_record import GpuRecord
from lightning_gpuaug.callbacks.timeline import Sums, Timeline


class GpuSampler:
    """Reads an `NvmlDevice` in a daemon thread, which makes all of the calls to NVML and ends at `stop()`.

    The first round, at the start, finds out what the driver gives and is not kept: each kept number is about a time
    at which training already ran. Whatever goes wrong ends up in `notes`, never in the training thread.

    Args:
        nvml: the module `pynvml`, or a stand-in.
        uuids: names of the device (`nvml.device_uuids`).
        interval_s: seconds between rounds.
        clock: time of day, seconds.
    """

    def __init__(
        self, nvml: Any, uuids: Sequence[str], interval_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._nvml, self._uuids, self._interval, self._clock = nvml, uuids, interval_s, clock
        self._thread = threading.Thread(target=self._run, name="gpuaug-nvml", daemon=True)
        self._ending = threading.Event()
        self._lock = threading.Lock()  # over all below
        self._window = Sums()
        self._timeline = Timeline()
        self._throttled: dict[str, int] = {}
        self._throttle_known = 0
        self._samples = 0
        self._absent: list[str] = []
        self._lost: list[str] = []
        self._description: Description | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread. One that hangs in the driver is left behind after `timeout` seconds; it is a daemon."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def take_window(self) -> Sums:
        """What was read since the last call."""
        with self._lock:
            window, self._window = self._window, Sums()
            return window

    def notes(self) -> tuple[list[str], list[str]]:
        """What was never there, and what was lost on the way; a sentence each."""
        with self._lock:
            return list(self._absent), list(self._lost)

    def record(self) -> GpuRecord:
        """Everything so far."""
        with self._lock:
            known = self._description
            return GpuRecord(
                name=known.name if known else None,
                uuid=known.uuid if known else None,
                driver=known.driver if known else None,
                memory_total_gib=known.memory_total_gib if known else None,
                power_limit_w=known.power_limit_w if known else None,
                interval_s=self._interval,
                samples=self._samples,
                timeline=self._timeline.means(),
                mean=self._timeline.overall(),
                throttled={name: count / self._throttle_known for name, count in self._throttled.items()},
                notes=[*self._absent, *self._lost],
            )

    # ---- in the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            device = NvmlDevice(self._nvml, self._uuids)
        except NvmlUnavailable as error:
            self._note(self._absent, [str(error)])
            return
        except Exception as error:  # training must not hear of it
            self._note(self._absent, [f"{type(error).__name__}: {error}"])
            return
        try:
            with self._lock:
                self._description = device.description
            device.read()
            self._note(self._absent, device.notes)
            told = len(device.notes)
            while not device.exhausted and not self._ending.wait(self._interval):
                self._keep(device.read())
                self._note(self._lost, device.notes[told:])
                told = len(device.notes)
        except Exception as error:
            self._note(self._lost, [f"{type(error).__name__}: {error}"])
        finally:
            device.close()

    def _keep(self, reading: Reading) -> None:
        if not reading.values:
            return
        with self._lock:
            self._samples += 1
            self._window.add(reading.values)
            self._timeline.add(self._clock(), reading.values)
            if reading.throttled_by is not None:
                self._throttle_known += 1
                for reason in reading.throttled_by:
                    self._throttled[reason] = self._throttled.get(reason, 0) + 1

    def _note(self, kind: list[str], sentences: Sequence[str]) -> None:
        with self._lock:
            kind.extend(sentences)
