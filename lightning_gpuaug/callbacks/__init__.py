"""Callbacks that tell whether the GPU ever waited."""

from lightning_gpuaug.callbacks.gpu_utilization import GpuUtilization
from lightning_gpuaug.callbacks.report import Report
from lightning_gpuaug.callbacks.throughput import Throughput

__all__ = ["GpuUtilization", "Report", "Throughput"]
