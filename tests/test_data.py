"""`ImageDataModule` before any batch: its arguments, its classes, where it runs, and what it refuses."""

from __future__ import annotations

import ctypes.util
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gpuaug import EvalRecipe, FileList, ImageDataModule, ImageFolder, Synthetic, TrainRecipe
from tests.images import numbered, write_images
from tests.tracking import Tracking, trainer

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": "4"}, "batch_size must be a whole number of at least 1, got '4'"),
        ({"batch_size": 2.0}, "batch_size must be a whole number of at least 1, got 2.0"),
        ({"batch_size": True}, "batch_size must be a whole number of at least 1, got True"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"eval_batch_size": 0}, "eval_batch_size must be a whole number of at least 1, got 0"),
        ({"image_size": 0}, "image_size must be a whole number of at least 1, got 0"),
        ({"image_size": (8, 8)}, r"image_size must be a whole number of at least 1, got \(8, 8\)"),
        ({"prefetch": -1}, "prefetch must be a whole number of at least 1, got -1"),
        ({"num_threads": 2.5}, "num_threads must be a whole number of at least 1, got 2.5"),
        ({"num_threads": "many"}, "num_threads must be a whole number of at least 1, got 'many'"),
        ({"seed": "1"}, "seed must be in 0..4294967295 and whole, got '1'"),
        ({"seed": 2**32}, "seed must be in 0..4294967295 and whole, got 4294967296"),
        ({"hw_decoder_load": "x"}, "hw_decoder_load must be a share in 0..1 or \"auto\", got 'x'"),
        ({"hw_decoder_load": 1.5}, 'hw_decoder_load must be a share in 0..1 or "auto", got 1.5'),
        ({"decode": "cuda"}, "decode must be one of 'auto', 'cpu', 'gpu', got 'cuda'"),
        ({"dtype": torch.float16}, "dtype must be one of 'float32', .*, got torch.float16"),
        ({"on_bad_image": "skip"}, "on_bad_image must be one of 'raise', 'substitute', got 'skip'"),
        ({"channels_last": "no"}, "channels_last must be one of True, False, got 'no'"),
        ({"drop_last": 0}, "drop_last must be one of True, False, got 0"),
        ({"train_recipe": EvalRecipe()}, r"train_recipe must be of type TrainRecipe, got EvalRecipe\("),
        ({"train_recipe": {"hflip": 0.5}}, "train_recipe must be of type TrainRecipe, got {'hflip': 0.5}"),
        ({"eval_recipe": TrainRecipe()}, r"eval_recipe must be of type EvalRecipe, got TrainRecipe\("),
    ],
)
def test_wrong_arguments_are_named_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as raised:
        ImageDataModule(train="anywhere", **arguments)
    assert "\n" not in str(raised.value)


def test_numpy_numbers_are_numbers(tmp_path: Path) -> None:
    dm = ImageDataModule(train=numbered(tmp_path, 4), batch_size=np.int64(2), seed=np.uint32(3))  # type: ignore[arg-type]
    assert (type(dm.batch_size), type(dm.seed)) == (int, int)


def test_a_module_without_data_says_so() -> None:
    for use in (lambda dm: dm.classes, lambda dm: dm.num_classes, lambda dm: dm.setup_for("cpu")):
        with pytest.raises(ValueError, match="has no data: give it train, val, test or predict"):
            use(ImageDataModule())


def test_what_is_left_unused_is_said_by_the_first_rank(tmp_path: Path) -> None:
    write_images(tmp_path / "a", 4)
    (tmp_path / "a" / ".hidden.jpg").touch()

    def setup(rank: int) -> None:
        ImageDataModule(train=tmp_path, image_size=8, batch_size=2).setup_for("cpu", rank, 2)

    setup(1)  # a warning would be an error
    with pytest.warns(UserWarning, match="1 hidden"):
        setup(0)


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        ("fit", "val", "has no train data: give it train="),
        ("validate", "train", "has no val data: give it val="),
        ("test", "train", "has no test data: give it test="),
        ("predict", "train", "has no predict data: give it predict="),
    ],
)
def test_a_stage_without_data_is_refused_at_set_up(tmp_path: Path, call: str, given: str, message: str) -> None:
    dm = ImageDataModule(**{given: numbered(tmp_path, 4)}, image_size=8, batch_size=2)  # type: ignore[arg-type]
    model = Tracking()
    with pytest.raises(ValueError, match=message):
        getattr(trainer(tmp_path, max_epochs=1), call)(model, datamodule=dm)
    assert not model.val_steps


def test_stages_outside_of_a_trainer(tmp_path: Path) -> None:
    dm = ImageDataModule(train=numbered(tmp_path, 4), image_size=8, batch_size=2)
    with pytest.raises(RuntimeError, match="call setup_for"):
        dm.train_dataloader()
    dm.setup_for("cpu")
    for loader in (dm.val_dataloader, dm.test_dataloader, dm.predict_dataloader):
        with pytest.raises(ValueError, match=r"has no (val|test|predict) data"):
            loader()
    with pytest.raises(ValueError, match="stage must be one of"):
        dm.sample_name(0, "validation")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpu",), 'device must be one that torch knows, as "cpu" or "cuda:0", got \'gpu\''),
        ((None,), "device must be one that torch knows, .* got None"),
        (("mps",), "on the CPU or on CUDA devices, got device mps"),
        (("cpu", 2, 2), "rank must be in 0..1 and whole, got 2"),
        (("cpu", 0, 0), "world must be a whole number of at least 1, got 0"),
        (("cpu", "0", 2), "rank must be in 0..1 and whole, got '0'"),
        (("cpu", 0, 9), "train data: every rank needs a sample: 4 samples < 9 ranks"),
    ],
)
def test_wrong_places_are_named(tmp_path: Path, arguments: tuple[Any, ...], message: str) -> None:
    dm = ImageDataModule(train=numbered(tmp_path, 4), image_size=8, batch_size=1)
    with pytest.raises(ValueError, match=message):
        dm.setup_for(*arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_and_gpu_decoding_are_refused_at_set_up(tmp_path: Path) -> None:
    dm = ImageDataModule(train=numbered(tmp_path, 4), image_size=8, batch_size=1)
    for device in ("cuda", "cuda:3"):
        with pytest.raises(ValueError, match=rf"device {device} is not there: .*CUDA"):
            dm.setup_for(device)
    dm = ImageDataModule(train=numbered(tmp_path, 4), image_size=8, batch_size=1, decode="gpu")
    with pytest.raises(ValueError, match=r'decode="gpu" needs batches on a CUDA device, got cpu: .*CUDA'):
        dm.setup_for("cpu")


NO_DRIVER = """
import sys
from pathlib import Path
from lightning_gpuaug import ImageDataModule, FileList
from tests.tracking import Tracking, trainer
source, folder = FileList(sys.argv[1]), Path(sys.argv[2])
options = {"batch_size": 2, "image_size": 8, "num_threads": 1}
model = Tracking()
run = trainer(folder, max_epochs=2)
run.fit(model, ImageDataModule(train=source, val=source, decode="cpu", **options))
run.predict(model, ImageDataModule(predict=source, decode="cpu", **options))
print(run.global_step, len(model.train_steps), len(model.val_steps))
try:
    trainer(folder, max_epochs=1).fit(model, ImageDataModule(train=source, decode="gpu", **options))
except ValueError as error:
    print(error)
"""


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="there is a CUDA driver")
def test_a_whole_fit_without_a_cuda_driver(tmp_path: Path) -> None:
    source = numbered(tmp_path, 6)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NO_DRIVER, str(source.path), str(tmp_path)],
        capture_output=True, text=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    steps, refusal = done.stdout.splitlines()[-2:]
    assert steps == "6 6 6"
    assert refusal.startswith('decode="gpu" needs batches on a CUDA device, got cpu: ')


def test_without_dali_set_up_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.delitem(sys.modules, "nvidia.dali", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "nvidia.dali" else find_spec(name))
    with pytest.raises(RuntimeError, match="NVIDIA DALI is not installed: pip install nvidia-dali-cuda120"):
        ImageDataModule(train=numbered(tmp_path, 4), image_size=8, batch_size=1).setup_for("cpu")
    cached = ImageDataModule(train=Synthetic(8, mode="cached"), image_size=8, batch_size=4).setup_for("cpu")
    assert len(list(cached.train_dataloader())) == 2  # needs no DALI
    cached.teardown("fit")


def fake_trainer(device: torch.device, rank: int, world: int, devices: int) -> Any:
    progress = SimpleNamespace(ready=0, processed=0)
    return SimpleNamespace(
        distributed_sampler_kwargs={"num_replicas": world, "rank": rank},
        strategy=SimpleNamespace(root_device=device),
        num_devices=devices,
        callbacks=[],
        overfit_batches=0.0,
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=SimpleNamespace(current=progress))),
    )


def test_the_strategy_says_which_device_and_which_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Global rank 3 of 2 nodes with 2 GPUs each: the node's second GPU, the last of 4 shards, half of the cores."""
    monkeypatch.setattr("lightning_gpuaug.finish.ops.backend", lambda device: "native-cuda")
    monkeypatch.setattr("lightning_gpuaug.data.threads_enough", lambda index: 16)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(12))
    dm = ImageDataModule(train=numbered(tmp_path, 16), image_size=8, batch_size=2, hw_decoder_load=1.0)
    dm.trainer = fake_trainer(torch.device("cuda", 1), rank=3, world=4, devices=2)
    dm.setup("fit")
    loader = dm.train_dataloader()
    assert (loader.plan.rank, loader.plan.world) == (3, 4)
    assert (loader.decoding.device, loader.decoding.device_id) == ("gpu", 1)
    assert loader.output.device == torch.device("cuda", 1)
    assert loader.decoding.num_threads == 6
    shards = []
    for rank in range(4):
        dm.trainer = fake_trainer(torch.device("cpu"), rank=rank, world=4, devices=2)
        dm.setup("fit")
        shards += dm.train_dataloader().plan.batch(0, 0).tolist()
    assert len(set(shards)) == 8


def test_few_queues_are_warned_of_where_the_gpu_decodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning_gpuaug.cuda_queues._in_force", 8)
    dm = ImageDataModule(train=numbered(tmp_path, 4), image_size=8, batch_size=2)
    dm.trainer = fake_trainer(torch.device("cuda", 0), rank=0, world=1, devices=1)
    with pytest.warns(UserWarning, match="CUDA_DEVICE_MAX_CONNECTIONS is 8"):
        dm.setup("fit")
    dm.setup_for("cpu")  # without a word


def test_the_checkpoint_carries_the_classes(tmp_path: Path) -> None:
    """Folders 1, 2, 10 are labelled 0, 2, 1; data that is evaluated alone gets the labels it was trained with."""
    for name in ("1", "2", "10"):
        write_images(tmp_path / "train" / name, 2)
    for name in ("10", "2"):
        write_images(tmp_path / "val" / name, 1)
    dm = ImageDataModule(train=tmp_path / "train", image_size=8, batch_size=2, num_threads=1)
    run = trainer(tmp_path, max_epochs=1)
    run.fit(Tracking(), dm)
    assert dm.class_to_idx == {"1": 0, "10": 1, "2": 2}
    run.save_checkpoint(tmp_path / "last.ckpt")
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)["ImageDataModule"]
    assert saved["classes"] == ["1", "10", "2"]

    model = Tracking()
    alone = ImageDataModule(val=tmp_path / "val", image_size=8, num_threads=1)
    with pytest.warns(UserWarning, match="no samples of class '1'"):
        trainer(tmp_path).validate(model, alone, ckpt_path=tmp_path / "last.ckpt", weights_only=True, verbose=False)
    assert [labels for _, labels, _ in model.val_steps] == [[1, 2]]


def test_names_beside_a_checkpoint_of_numbers_are_refused(tmp_path: Path) -> None:
    """The folder's classes b and c would be the classes 0 and 1."""
    run = trainer(tmp_path, max_epochs=1)
    run.fit(Tracking(), ImageDataModule(train=numbered(tmp_path, 4), image_size=8, batch_size=2, num_threads=1))
    run.save_checkpoint(tmp_path / "last.ckpt")
    for name in "bc":
        write_images(tmp_path / "val" / name, 1)
    named = ImageDataModule(val=tmp_path / "val", image_size=8, num_threads=1)
    with pytest.raises(ValueError, match=r"the val data has names .*, the checkpoint's training data numbers alone: "):
        trainer(tmp_path).validate(Tracking(), named, ckpt_path=tmp_path / "last.ckpt", weights_only=True)


def test_a_state_that_is_loaded_first_is_kept_by_the_set_up(tmp_path: Path) -> None:
    def module() -> ImageDataModule:
        return ImageDataModule(train=numbered(tmp_path, 12), image_size=8, batch_size=2, num_threads=1, seed=3)

    begun = module().setup_for("cpu")
    batches = iter(begun.train_dataloader())
    for _ in range(2):
        next(batches)
    state = begun.state_dict()
    rest = [labels.tolist() for _, labels in batches]
    resumed = module()
    resumed.load_state_dict(state)
    resumed.setup_for("cpu")
    assert resumed.state_dict() == state
    assert [labels.tolist() for _, labels in resumed.train_dataloader()] == rest
    resumed.setup_for("cpu")  # begins anew: the state has been used
    assert len(list(resumed.train_dataloader())) == 6
    for dm in (begun, resumed):
        dm.teardown("fit")


def test_what_is_wrong_with_a_path_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_images(tmp_path / "loose", 1)
    write_images(tmp_path / "train" / "a", 1)
    write_images(tmp_path / "dangling" / "a", 1)
    (tmp_path / "dangling" / "a" / "link.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "list.txt").write_text("train/a/000000.jpg 0\nmissing.jpg 0\n")
    cases: list[tuple[Any, type[Exception], str]] = [
        (tmp_path / "none", FileNotFoundError, r"no such folder: .*none"),
        (tmp_path / "empty", ValueError, r"class sub-folders expected, .*empty is empty"),
        (tmp_path / "loose", ValueError, "class sub-folders expected, 1 loose image found"),
        (tmp_path / "dangling", FileNotFoundError, r"link leads nowhere: .*link\.jpg"),
        (tmp_path / "list.txt", NotADirectoryError, r"list\.txt is a file \(a list\? use FileList\)"),
        (FileList(tmp_path / "list.txt"), OSError, r"1 of the 2 files .* missing, the first on line 2: .*missing\.jpg"),
    ]
    for source, error, message in cases:
        with pytest.raises(error, match=message) as raised:
            ImageDataModule(train=source, batch_size=1).setup_for("cpu")
        assert "\n" not in str(raised.value)
    for source in (3, ["a"], None):
        with pytest.raises((TypeError, ValueError), match=r"source must be a path|has no data"):
            ImageDataModule(train=source).setup_for("cpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"not a source: .*class_path is ImageFolder, FileList, TFRecord"):
        ImageDataModule(train="{'class_path': 'FileLost'}")
    with pytest.raises(ValueError, match=r"got a file that begins with 'a.jpg 0'; a list of images"):
        ImageDataModule(train="a.jpg 0\nb.jpg 1\n")


def test_training_without_validation_data(tmp_path: Path) -> None:
    """As if there were no `val_dataloader` at all: no sanity check, no validation, no warning."""
    source = numbered(tmp_path, 4)
    dm = ImageDataModule(train=source, image_size=8, batch_size=2, num_threads=1)
    model, run = Tracking(), trainer(tmp_path, max_epochs=2)
    run.fit(model, dm)
    assert (len(model.train_steps), model.val_steps) == (4, [])
    with pytest.raises(ValueError, match="has no val data"):
        dm.setup_for("cpu").val_dataloader()

    class WithItsOwn(ImageDataModule):
        def val_dataloader(self) -> Any:
            return ImageDataModule(val=source, image_size=8, num_threads=1).setup_for("cpu").val_dataloader()

    model = Tracking()
    trainer(tmp_path, max_epochs=1).fit(model, WithItsOwn(train=source, image_size=8, batch_size=2, num_threads=1))
    assert [labels for _, labels, _ in model.val_steps] == [[0, 1, 2, 3]]


def test_a_class_only_in_val_is_refused_at_set_up(tmp_path: Path) -> None:
    write_images(tmp_path / "train" / "a", 2)
    for name in ("a", "z"):
        write_images(tmp_path / "val" / name, 1)
    dm = ImageDataModule(train=tmp_path / "train", val=ImageFolder(tmp_path / "val"), image_size=8, batch_size=2)
    with pytest.raises(ValueError, match="class 'z' not among the 1 training classes"):
        trainer(tmp_path, max_epochs=1).fit(Tracking(), dm)
