"""The first steps of a run can be captured as CUDA graphs: nothing is decoded beside them."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_gpuaug import FileList, ImageDataModule

pytestmark = pytest.mark.gpu

BATCH = 16


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> FileList:
    """JPEGs of which each batch's are larger than those before: memory pools grow, and give back what is too small."""
    folder = tmp_path_factory.mktemp("growing")
    lines = []
    for i in range(12 * BATCH):
        side = 64 * (1 + i // BATCH)
        ramp = np.add.outer(np.arange(side), np.arange(side))[..., None] * np.array([1, 2, 3]) + i
        Image.fromarray((ramp % 256).astype(np.uint8)).save(folder / f"{i}.jpg", quality=90)
        lines.append(f"{folder / f'{i}.jpg'} {i}\n")
    listing = folder / "list.txt"
    listing.write_text("".join(lines))
    return FileList(listing)


def test_the_first_steps_can_be_captured(growing: FileList) -> None:
    for _ in range(8):
        dm = ImageDataModule(val=growing, batch_size=BATCH, image_size=224, num_threads=4, decode="gpu")
        dm.setup_for("cuda:0")
        for step, (images, labels) in enumerate(dm.val_dataloader()):
            assert labels.tolist() == list(range(step * BATCH, (step + 1) * BATCH))
            if step < 4:
                expected = images.float().mean()
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    mean = images.float().mean()
                    time.sleep(0.05)  # as long as the capture of a network's pass takes
                graph.replay()
                assert mean.item() == expected.item()
        dm.teardown("validate")
