"""`ImageDataModule`: image folders and lists, decoded by DALI, as finished batches on the trainer's device."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import lightning.pytorch as pl
import torch
from lightning.pytorch.trainer.states import TrainerFn

from lightning_gpuaug import cuda_queues, ops, resume
from lightning_gpuaug.bad_images import OnBadImage
from lightning_gpuaug.finish import Output
from lightning_gpuaug.hw_decoder import best_hw_decoder_load
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.pipeline import Decoding, release_memory
from lightning_gpuaug.plan import Plan
from lightning_gpuaug.recipe import EvalRecipe, TrainRecipe
from lightning_gpuaug.sources import Source, as_source

Stage = Literal["train", "val", "test", "predict"]
STAGES: tuple[Stage, ...] = get_args(Stage)
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "uint8": torch.uint8,
}
_STATE_VERSION = 1


@dataclass(frozen=True)
class _Place:
    """Which process this is and where it wants its batches."""

    device: torch.device
    rank: int
    world: int
    local_world: int


class ImageDataModule(pl.LightningDataModule):
    """Images from folders, lists or memory, decoded by NVIDIA DALI and augmented on the trainer's device.

    Batches are `(images, targets)`: images (N, 3, image_size, image_size) of `dtype`, normalised, on the trainer's
    device; targets int64 (N,), or float32 (N, C) when the data is multi-label. Prediction batches are
    `(images, indices)`, and `sample_name(i)` gives the file of an index.

    Training shuffles globally, a new order each epoch; evaluation delivers every sample exactly once over all ranks.
    All ranks make equal numbers of steps. Shards follow the trainer's strategy, checkpoints resume to the sample.

    Args:
        train: a path (class sub-folders, as torchvision's ImageFolder) or a source.
        val: the same, labelled with the training classes.
        test: the same, labelled with the training classes.
        predict: the same; labels are not used.
        batch_size: training images per device and step.
        eval_batch_size: evaluation images per device and step; `batch_size` if None.
        image_size: height and width of the images, pixels.
        train_recipe: what happens to training images.
        eval_recipe: what happens to the others.
        decode: where DALI decodes, "cpu", "gpu", or "auto": the trainer's device.
        dtype: "float32", "float16", "bfloat16", or "uint8" for raw pixels.
        channels_last: memory format of the images.
        num_threads: CPU threads of a DALI pipeline, or "auto": this process's share of the cores, at most 16.
        prefetch: batches decoded ahead, at least 1.
        hw_decoder_load: share of JPEGs for the GPU's hardware decoder, 0..1, or "auto": measured at the start.
        drop_last: leave out the training samples that do not fill a step. Evaluation never leaves any out.
        seed: of order and augmentation, 0..2**32-1; None takes `seed_everything`'s, else 0.
        on_bad_image: "raise" stops with the file's name; "substitute" goes on without the image (training puts
            another image of the batch in its place, evaluation leaves it out) and warns.

    Raises:
        ValueError: an argument is out of range; when the data is looked at: a path is missing or empty, a class
            is not among the training classes, there are fewer samples than ranks or than a training batch.
    """

    def __init__(
        self,
        train: str | Source | os.PathLike[str] | None = None,
        val: str | Source | os.PathLike[str] | None = None,
        test: str | Source | os.PathLike[str] | None = None,
        predict: str | Source | os.PathLike[str] | None = None,
        batch_size: int = 64,
        eval_batch_size: int | None = None,
        image_size: int = 224,
        train_recipe: TrainRecipe = TrainRecipe(),  # noqa: B008 - frozen
        eval_recipe: EvalRecipe = EvalRecipe(),  # noqa: B008 - frozen
        decode: Literal["auto", "cpu", "gpu"] = "auto",
        dtype: Literal["float32", "float16", "bfloat16", "uint8"] = "float32",
        channels_last: bool = True,
        num_threads: int | Literal["auto"] = "auto",
        prefetch: int = 2,
        hw_decoder_load: float | Literal["auto"] = "auto",
        drop_last: bool = True,
        seed: int | None = None,
        on_bad_image: OnBadImage = "raise",
    ) -> None:
        super().__init__()
        _at_least("batch_size", batch_size, 1)
        _at_least("image_size", image_size, 1)
        _at_least("prefetch", prefetch, 1)
        if eval_batch_size is not None:
            _at_least("eval_batch_size", eval_batch_size, 1)
        if num_threads != "auto":
            _at_least("num_threads", num_threads, 1)
        if hw_decoder_load != "auto" and not 0.0 <= hw_decoder_load <= 1.0:
            raise ValueError(f'hw_decoder_load must be a share in 0..1 or "auto", got {hw_decoder_load!r}')
        if seed is not None and not 0 <= seed < 2**32:
            raise ValueError(f"seed must be in 0..2**32-1, got {seed!r}")
        _one_of("decode", decode, ("auto", "cpu", "gpu"))
        _one_of("dtype", dtype, tuple(DTYPES))
        _one_of("on_bad_image", on_bad_image, get_args(OnBadImage))
        given = {"train": train, "val": val, "test": test, "predict": predict}
        self._given: dict[str, Source] = {k: as_source(v) for k, v in given.items() if v is not None}
        self._labelled: dict[str, Source] = {}
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size or batch_size
        self.image_size, self.train_recipe, self.eval_recipe = image_size, train_recipe, eval_recipe
        self.decode, self.dtype, self.channels_last = decode, dtype, channels_last
        self.num_threads, self.prefetch, self.hw_decoder_load = num_threads, prefetch, hw_decoder_load
        self.drop_last, self.seed, self.on_bad_image = drop_last, seed, on_bad_image
        self._place: _Place | None = None
        self._loaders: dict[str, Loader] = {}
        self._restored: dict[str, Any] | None = None
        self._checkpoint_classes: tuple[str, ...] | None = None  # training classes, where no training data is given

    # ---- what is in the data -------------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, the position being the label; None when they are unknown. Scans the data."""
        return self._labels().classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Class name to label."""
        return self._labels().class_to_idx

    @property
    def num_classes(self) -> int:
        """Number of classes: the size of the model's output."""
        return self._labels().num_classes

    def sample_name(self, index: int, stage: Stage = "predict") -> str:
        """The file (or record key) of a sample.

        Args:
            index: as a prediction batch hands it over.
            stage: whose sample it is.
        """
        return self._source(stage).sample_name(int(index))

    @property
    def bad_images(self) -> dict[str, str]:
        """File to reason, of every image that was substituted so far in this process."""
        return {
            loader.source.paths[index]: reason
            for loader in self._loaders.values()
            for index, reason in loader.bad.reasons.items()
        }

    @property
    def decode_device(self) -> Literal["cpu", "gpu"]:
        """Where DALI decodes; known once the device is (`setup` or `setup_for`)."""
        if self.decode != "auto":
            return self.decode
        return "gpu" if self._require_place().device.type == "cuda" else "cpu"

    def _labels(self) -> Source:
        for stage in STAGES:
            if stage in self._given:
                return self._given[stage]
        raise ValueError("ImageDataModule has no data: give it train, val, test or predict")

    def _source(self, stage: Stage) -> Source:
        """The data of a stage, under the training classes."""
        if stage not in self._given:
            raise ValueError(f"ImageDataModule has no {stage} data: give it {stage}=")
        if stage not in self._labelled:
            source = self._given[stage]
            train = self._given.get("train")
            classes = train.classes if train is not None else self._checkpoint_classes
            if stage in ("val", "test") and classes is not None:
                source = source.with_classes(classes)
            self._labelled[stage] = source
        return self._labelled[stage]

    # ---- where it runs -------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Called by the Trainer: look at the data, and refuse now what cannot work later."""
        trainer = self.trainer
        assert trainer is not None
        shard = trainer.distributed_sampler_kwargs or {"num_replicas": 1, "rank": 0}
        device = trainer.strategy.root_device
        self._place = _Place(device, shard["rank"], shard["num_replicas"], max(1, trainer.num_devices))
        self._restored = None
        used: tuple[Stage, ...] = ("train", "val") if stage == "fit" else ("val",) if stage == "validate" else ()
        if stage in ("test", "predict"):
            used = ("test",) if stage == "test" else ("predict",)
        self._check(tuple(s for s in used if s in self._given))
        if stage == "fit" and not any(isinstance(c, resume.ContinueEpoch) for c in trainer.callbacks):  # type: ignore[attr-defined]
            trainer.callbacks.append(resume.ContinueEpoch(self._resumed_place))  # type: ignore[attr-defined]

    def setup_for(
        self, device: str | torch.device, rank: int = 0, world: int = 1, local_world: int | None = None
    ) -> ImageDataModule:
        """Say, outside of a Trainer (Fabric, a plain loop), what a Trainer would have said; returns itself.

        Args:
            device: where batches are handed over.
            rank: this process, 0..world-1.
            world: number of processes that share the data.
            local_world: how many of them are on this machine; `world` if None.
        """
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self.trainer = None  # a Trainer that had this module before has no say any more
        self._restored = None
        self._place = _Place(device, rank, world, local_world or world)
        self._check(tuple(s for s in STAGES if s in self._given))
        return self

    def _check(self, stages: tuple[Stage, ...]) -> None:
        self._close_loaders()
        place = self._require_place()
        if self.decode == "gpu" and place.device.type != "cuda":
            raise ValueError(f'decode="gpu" needs batches on a CUDA device, got {place.device}: {_why_no_cuda()}')
        if self.decode_device == "gpu":
            cuda_queues.warn_if_few()
        for stage in stages:
            self._source(stage).check()
            self._plan(stage)

    def _require_place(self) -> _Place:
        if self._place is None:
            raise RuntimeError(
                "the device is not known yet: let a Trainer use this data module, or call setup_for(device) first"
            )
        return self._place

    # ---- loaders -------------------------------------------------------------------------------------------------

    def train_dataloader(self) -> Loader:
        """Training batches."""
        return self._loader("train")

    def val_dataloader(self) -> Loader | list[Loader]:
        """Validation batches; no loader at all when there is no validation data."""
        return self._loader("val") if "val" in self._given else []

    def test_dataloader(self) -> Loader:
        """Test batches."""
        return self._loader("test")

    def predict_dataloader(self) -> Loader:
        """Prediction batches `(images, indices)`, in the order of the data."""
        return self._loader("predict")

    def _loader(self, stage: Stage) -> Loader:
        if stage not in self._loaders:
            place, plan = self._require_place(), self._plan(stage)
            source = self._source(stage)
            output = Output(place.device, DTYPES[self.dtype], self.channels_last, indices=stage == "predict")
            in_trainer = self.trainer is not None and stage == "train"
            self._loaders[stage] = Loader(
                source,
                plan,
                self._decoding(stage, source),
                output,
                seed=self._seed(),
                on_bad_image=self.on_bad_image,
                locate=self._locate if in_trainer else None,
            )
            if stage == "train":
                self._apply_restored()
        return self._loaders[stage]

    def _plan(self, stage: Stage) -> Plan:
        place, training = self._require_place(), stage == "train"
        overfit = self.trainer is not None and self.trainer.overfit_batches > 0  # type: ignore[attr-defined]
        try:
            return Plan(
                size=len(self._source(stage)),
                batch_size=self.batch_size if training else self.eval_batch_size,
                rank=place.rank,
                world=place.world,
                shuffle=training and not overfit,
                drop_last=training and self.drop_last,
                seed=self._seed(),
            )
        except ValueError as error:
            raise ValueError(f"{stage} data: {error}") from None

    def _decoding(self, stage: Stage, source: Source) -> Decoding:
        place, training = self._require_place(), stage == "train"
        batch_size = self.batch_size if training else self.eval_batch_size
        cores = len(os.sched_getaffinity(0)) // place.local_world
        threads = max(1, min(16, cores)) if self.num_threads == "auto" else self.num_threads
        decoding = Decoding(
            recipe=self.train_recipe if training else self.eval_recipe,
            image_size=self.image_size,
            batch_size=max(2, batch_size),  # batches of one may have to take a second row, see plan.py
            device=self.decode_device,
            device_id=place.device.index,
            num_threads=threads,
            prefetch=self.prefetch,
            hw_decoder_load=self.hw_decoder_load if self.hw_decoder_load != "auto" else 1.0,
            packed=training and self.decode_device == "gpu" and ops.backend(place.device) == "native-cuda",
        )
        if self.hw_decoder_load == "auto":
            decoding = best_hw_decoder_load(decoding, source)
        return decoding

    def _seed(self) -> int:
        return self.seed if self.seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))

    def _locate(self) -> tuple[int, int]:
        assert self.trainer is not None
        return resume.position(self.trainer)

    # ---- resuming ------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where training is, in terms that any number of ranks can continue from; plain values only.

        The order is planned globally and all ranks make equal steps, so every rank's state is the same and nothing
        has to be gathered.
        """
        train = self._loaders.get("train")
        if train is None:
            return self._restored or {}
        step_back = resume.steps_in_flight(self.trainer) if self.trainer is not None else 0
        place = train.place
        place = type(place)(place.epoch, max(0, place.step - step_back), place.consumed)
        return {
            "version": _STATE_VERSION,
            "epoch": place.epoch,
            "consumed": train.consumed(place),
            "seed": train.seed,
            "fingerprint": train.source.fingerprint(),
            "size": len(train.source),
            "classes": list(self.classes) if self.classes is not None else None,
            "recipe": repr((self.train_recipe, self.image_size)),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken; works before or after the loaders were asked for.

        Raises:
            ValueError: the training data or its classes are not those of the checkpoint.
        """
        state = dict(state_dict)
        if not state:
            return
        if state.get("version") != _STATE_VERSION:
            raise ValueError(f"data state version must be {_STATE_VERSION}, got {state.get('version')!r}")
        if "train" not in self._given:
            self._checkpoint_classes = tuple(state["classes"]) if state["classes"] is not None else None
            self._labelled.clear()
            return
        classes = list(self.classes) if self.classes is not None else None
        if classes != state["classes"]:
            raise ValueError(f"classes differ from the checkpoint's: {_first_difference(classes, state['classes'])}")
        fitting = self.trainer is None or self.trainer.state.fn in (None, TrainerFn.FITTING)
        if not fitting:
            return
        source = self._source("train")
        if source.fingerprint() != state["fingerprint"]:
            raise ValueError(
                f"the training data is not the checkpoint's: {len(source)} samples now, {state['size']} then, or other "
                f"names or labels (fingerprint {source.fingerprint()} now, {state['fingerprint']} then); "
                "resume with the same data, or start a new run from the weights alone"
            )
        if self.seed is not None and self.seed != state["seed"]:
            warnings.warn(
                f"seed={self.seed} is ignored: the checkpoint continues with its own, {state['seed']}", stacklevel=2
            )
        if repr((self.train_recipe, self.image_size)) != state["recipe"]:
            warnings.warn(
                "train_recipe or image_size differ from the checkpoint's: same samples, other pixels", stacklevel=2
            )
        self._restored = state
        self._apply_restored()

    def _apply_restored(self) -> None:
        loader, state = self._loaders.get("train"), self._restored
        if loader is not None and state is not None:
            loader.resume(state["epoch"], state["consumed"], state["seed"])

    def _resumed_place(self) -> tuple[int, int] | None:
        loader = self._loaders.get("train")
        if loader is None or self._restored is None:
            return None
        return self._restored["epoch"], loader.plan.first_step(self._restored["consumed"])

    # ---- the end -------------------------------------------------------------------------------------------------

    def teardown(self, stage: str) -> None:
        """Stop the pipelines and free their memory."""
        self._close_loaders()
        release_memory()

    def on_exception(self, exception: BaseException) -> None:
        """The Trainer calls no teardown after an exception."""
        self.teardown("exception")

    def _close_loaders(self) -> None:
        for loader in self._loaders.values():
            loader.close()
        self._loaders.clear()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the loaders, which belong to this process."""
        return {**self.__dict__, "_loaders": {}}

    def __str__(self) -> str:
        """One line; the inherited one would ask for every loader."""
        parts = ", ".join(f"{stage}={source!r}" for stage, source in self._given.items())
        return f"ImageDataModule({parts}, batch_size={self.batch_size}, image_size={self.image_size})"

    __repr__ = __str__


def _at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _why_no_cuda() -> str:
    if torch.version.cuda is None:
        return "this torch is built without CUDA"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device (driver missing, or CUDA_VISIBLE_DEVICES hides it)"
    return 'run the Trainer with accelerator="gpu", or use decode="cpu"'


def _first_difference(now: list[str] | None, then: list[str] | None) -> str:
    if now is None or then is None:
        return f"{len(now or [])} class names now, {len(then or [])} then"
    for i, (a, b) in enumerate(zip(now, then, strict=False)):
        if a != b:
            return f"class {i} is {a!r} now and was {b!r}"
    return f"{len(now)} classes now, {len(then)} then"
