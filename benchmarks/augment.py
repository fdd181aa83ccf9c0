"""How long augmentation takes: ours, torchvision, kornia, DALI, compiled torch and a copy, in one run.

    python -m benchmarks.augment [--batch 256] [--size 224] [--json augment.json] [--chart augment.png]

This is `gpuaug bench augment`, for a source tree; the options are the same.
"""

from __future__ import annotations

import sys

from lightning_gpuaug.cli import bench_augment


def main() -> int:
    return bench_augment.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
