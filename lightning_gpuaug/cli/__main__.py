"""`python -m lightning_gpuaug.cli` is `gpuaug`."""

import sys

from lightning_gpuaug.cli.dispatch import main

if __name__ == "__main__":
    sys.exit(main())
