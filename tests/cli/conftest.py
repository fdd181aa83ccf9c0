"""One tiny tree of digits, and a short fit on it, for all commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuaug.cli.digits import DigitsTree, write_digits

# Said by Lightning about its own use of jsonargparse and torch, and about runs as short as a test's.
BESIDE_THE_POINT = [
    r"(?s).*(deprecated in v4|JsonargparseDeprecationWarning)",
    ".*LeafSpec.*",
    ".*tensorboardX.*",
    ".*smaller than the logging interval.*",
    "the warm-up of .* steps does not end within the run",
    ".*exists and is not empty.*",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for message in BESIDE_THE_POINT:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{message}"))


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> DigitsTree:
    return write_digits(tmp_path_factory.mktemp("digits"), limit=80)


@pytest.fixture(scope="session")
def tiny(tree: DigitsTree) -> list[str]:
    """Options that make any configuration a two-step fit on the CPU."""
    return [
        f"--data.train={tree.train}",
        f"--data.val={tree.val}",
        "--data.batch_size=8",
        "--data.image_size=32",
        "--model.model=test_resnet",
        "--trainer.accelerator=cpu",
        "--trainer.devices=1",
        "--trainer.max_epochs=1",
        "--trainer.limit_train_batches=2",
        "--trainer.limit_val_batches=1",
        "--trainer.num_sanity_val_steps=0",
        "--trainer.log_every_n_steps=1",
        "--trainer.enable_progress_bar=false",
        "--trainer.enable_model_summary=false",
    ]
