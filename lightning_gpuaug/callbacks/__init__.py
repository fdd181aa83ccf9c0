"""Callbacks that tell whether the GPU ever waited, and why, and what the network was given."""

from lightning_gpuaug.callbacks.gpu_utilization import GpuUtilization
from lightning_gpuaug.callbacks.input_doctor import InputDoctor
from lightning_gpuaug.callbacks.preview import BatchPreview
from lightning_gpuaug.callbacks.report import Report
from lightning_gpuaug.callbacks.throughput import Throughput

__all__ = ["BatchPreview", "GpuUtilization", "InputDoctor", "Report", "Throughput"]
