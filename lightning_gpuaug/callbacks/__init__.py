"""Callbacks that tell whether the GPU ever waited, and why."""

from lightning_gpuaug.callbacks.input_doctor import InputDoctor
from lightning_gpuaug.callbacks.throughput import Throughput

__all__ = ["InputDoctor", "Throughput"]
