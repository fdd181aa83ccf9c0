"""`GpuUtilization`: what each rank's GPU does while it trains, from NVML."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from lightning_gpuaug.callbacks import nvml
from lightning_gpuaug.callbacks.gpu_sampler import GpuSampler
from lightning_gpuaug.callbacks.idle_hooks import leave_out_idle_hooks
from lightning_gpuaug.callbacks.rank_sum import RankSum
from lightning_gpuaug.callbacks.run_record import GpuRecord
from lightning_gpuaug.callbacks.timeline import Sums


class GpuUtilization(pl.Callback):
    """Log what the GPUs do: how busy, how hot, how throttled, and which of their engines work.

    Works with any LightningModule and any loader. One daemon thread a rank asks NVML about this rank's GPU, which it
    finds by UUID, so that `CUDA_VISIBLE_DEVICES` cannot mislead it. The training thread makes no call to NVML, starts
    no process and synchronises nothing.

    Logged by rank 0 to all of the trainer's loggers: means over the samples since the log before and over all ranks
    (of several GPUs, the report shows each).

    - `gpu/utilization_pct`: time in which any kernel ran, % (as `nvidia-smi` says; a single thread counts as busy).
    - `gpu/memory_utilization_pct`: time in which device memory was read or written, %.
    - `gpu/memory_used_gib`: device memory in use by all processes, GiB.
    - `gpu/power_w`, `gpu/temperature_c`, `gpu/sm_clock_mhz`, `gpu/memory_clock_mhz`.
    - `gpu/throttled_pct`: samples in which clocks were held down by power, heat or a brake, %.
    - `gpu/jpeg_decoder_pct`, `gpu/video_decoder_pct`: use of the NVJPG and NVDEC engines, %.
    - `gpu/pcie_rx_gb_per_s`, `gpu/pcie_tx_gb_per_s`: PCIe traffic to and from the GPU, GB/s.
    - On Hopper and newer (GPM): `gpu/sm_active_pct`, SMs with work; `gpu/sm_occupancy_pct`, warps of the most
      possible; `gpu/tensor_active_pct`, time the tensor cores worked; `gpu/dram_bandwidth_pct`, of the peak.

    A number that the driver does not give is absent, never 0: one warning at the start says which and why, and one
    more if some stop coming later. Training goes on in any case. Of a MIG instance only its memory is known. Validation
    inside the fit is sampled too. Without a CUDA device there is nothing to log.

    Args:
        interval_s: seconds between two samples, at least 0.1; NVML renews its numbers about every 0.2 to 1 s.
        log_every_n_steps: optimizer steps between logs; None takes the trainer's.
    """

    def __init__(self, interval_s: float = 1.0, log_every_n_steps: int | None = None) -> None:
        """Check the arguments."""
        if interval_s < 0.1:
            raise ValueError(f"interval_s must be ≥ 0.1, got {interval_s!r}")
        if log_every_n_steps is not None and log_every_n_steps <= 0:
            raise ValueError(f"log_every_n_steps must be > 0 or None, got {log_every_n_steps!r}")
        self.interval_s = interval_s
        self.log_every_n_steps = log_every_n_steps
        self._sampler: GpuSampler | None = None  # while training
        self._record: GpuRecord | None = None  # of the last fit
        self._on_their_way: deque[tuple[int, RankSum]] = deque()
        self._steps_seen = 0
        self._told_absent = self._told_lost = False
        leave_out_idle_hooks(self)

    def run_record(self) -> GpuRecord | None:
        """What this rank's GPU did; also the summary of a fit: `run_record().mean` has each metric's mean."""
        return self._record if self._sampler is None else self._sampler.record()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Forget the fit before."""
        if stage == "fit":
            self._stop()
            self._record = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start to watch this rank's GPU."""
        self._steps_seen = trainer.global_step
        self._on_their_way.clear()
        self._told_absent = self._told_lost = False
        device = trainer.strategy.root_device
        names = _names(device)
        if not names:
            rank_zero_info(f"GpuUtilization: training runs on {device}, there is no GPU to watch")
            return
        try:
            module = nvml.load()
        except nvml.NvmlUnavailable as error:
            rank_zero_warn(f"GpuUtilization logs nothing: {error}")
            return
        self._sampler = GpuSampler(module, names, self.interval_s)
        self._sampler.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log when it is time."""
        before, self._steps_seen = self._steps_seen, trainer.global_step
        every: int = self.log_every_n_steps or trainer.log_every_n_steps  # type: ignore[attr-defined]
        # A collective where there are several ranks: it depends on the number of steps alone, which is equal on all.
        if every and self._steps_seen // every > before // every:
            window = Sums() if self._sampler is None else self._sampler.take_window()
            self._on_their_way.append((self._steps_seen - 1, _over_ranks(window, trainer.strategy.root_device)))
            self._tell()
        self._send(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Send the last logs and stop watching."""
        self._send(trainer, wait=True)
        if self._sampler is not None:
            self._sampler.stop()
        self._tell()
        self._stop()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Stop watching. No collective: other ranks may not be here."""
        self._on_their_way.clear()
        self._stop()

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Stop watching, if a fit ended without saying so."""
        self._stop()

    def _stop(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()
            self._record = self._sampler.record()
            self._sampler = None  # its thread and lock cannot be pickled

    def _tell(self) -> None:
        if self._sampler is None:
            return
        absent, lost = self._sampler.notes()
        if absent and not self._told_absent:
            self._told_absent = True
            rank_zero_warn(f"GpuUtilization cannot log everything. {'; '.join(absent)}")
        if lost and not self._told_lost:
            self._told_lost = True
            rank_zero_warn(f"GpuUtilization lost numbers that it had. {'; '.join(lost)}")

    def _send(self, trainer: pl.Trainer, wait: bool = False) -> None:
        while self._on_their_way and (wait or self._on_their_way[0][1].ready()):
            step, sums = self._on_their_way.popleft()
            if not trainer.is_global_zero:
                continue
            means = _means(sums.values())
            for logger in trainer.loggers if means else ():
                logger.log_metrics({f"gpu/{name}": value for name, value in means.items()}, step=step)


def _names(device: torch.device) -> list[str]:
    """What NVML may call the device; nothing for one that it does not know."""
    if device.type != "cuda":
        return []
    index = torch.cuda.current_device() if device.index is None else device.index
    uuid = str(torch.cuda.get_device_properties(index).uuid)
    return nvml.device_uuids(index, uuid, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _over_ranks(window: Sums, device: torch.device) -> RankSum:
    """This rank's means, added to those of the others, and how many ranks have each."""
    means = window.means()
    values = [means.get(name, 0.0) for name in nvml.METRICS]
    return RankSum([*values, *(float(name in means) for name in nvml.METRICS)], device)


def _means(sums: list[float]) -> dict[str, float]:
    values, ranks = sums[: len(nvml.METRICS)], sums[len(nvml.METRICS) :]
    return {name: value / n for name, value, n in zip(nvml.METRICS, values, ranks, strict=True) if n}
