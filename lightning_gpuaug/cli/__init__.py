"""The `gpuaug` command."""

from lightning_gpuaug.cli.dispatch import main

__all__ = ["main"]
