"""Callbacks that tell whether the GPU ever waited, and what the network was given."""

from lightning_gpuaug.callbacks.preview import BatchPreview
from lightning_gpuaug.callbacks.throughput import Throughput

__all__ = ["BatchPreview", "Throughput"]
