"""The call shapes of other packages, served by `lightning_gpuaug.ops`."""
