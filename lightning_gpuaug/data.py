"""`ImageDataModule`: image folders and lists, decoded by DALI, as finished batches on the trainer's device."""

from __future__ import annotations

import copy
import dataclasses
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import lightning.pytorch as pl
import torch
from lightning.pytorch.trainer.states import TrainerFn

from lightning_gpuaug import cuda_queues, resume
from lightning_gpuaug.announce import AnnounceBackward
from lightning_gpuaug.arguments import instance, one_of, share, whole
from lightning_gpuaug.bad_images import OnBadImage
from lightning_gpuaug.devices import torch_device, why_no_cuda
from lightning_gpuaug.finish import Output, resizes_natively
from lightning_gpuaug.hw_decoder import best_hw_decoder_load, threads_enough
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.pipeline import Decoding, release_memory, require_dali
from lightning_gpuaug.plan import Plan
from lightning_gpuaug.recipe import EvalRecipe, TrainRecipe
from lightning_gpuaug.sources import Source, as_source
from lightning_gpuaug.sources.agree import require_no_names, require_same_kind, require_same_numbers
from lightning_gpuaug.sources.base import Targets
from lightning_gpuaug.steps_ahead import LimitStepsAhead
from lightning_gpuaug.training_state import TrainingState

Stage = Literal["train", "val", "test", "predict"]
STAGES: tuple[Stage, ...] = get_args(Stage)
_STAGES_OF: dict[str, tuple[Stage, ...]] = {
    "fit": ("train", "val"),
    "validate": ("val",),
    "test": ("test",),
    "predict": ("predict",),
}
"""What each of the Trainer's entry points reads; the first one it cannot do without."""
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "uint8": torch.uint8,
}


@dataclass(frozen=True)
class _Place:
    """Which process this is and where it wants its batches."""

    device: torch.device
    rank: int
    world: int
    local_world: int


@dataclass(frozen=True)
class _Labels:
    """What the labels mean, by a checkpoint: the names of its training classes, or that they had none."""

    classes: tuple[str, ...] | None


@dataclass(frozen=True)
class _Made:
    """What a loader was made from: when the module's attributes say something else, another one is made."""

    source: Source
    plan: Plan
    decoding: Decoding
    output: Output
    on_bad_image: OnBadImage


class ImageDataModule(pl.LightningDataModule):
    """Images from folders, lists or memory, decoded by NVIDIA DALI and augmented on the trainer's device.

    Batches are `(images, targets)`: images (N, 3, image_size, image_size) of `dtype`, normalised, on the trainer's
    device; targets int64 (N,), or float32 (N, C) when the data is multi-label or the recipe mixes. A recipe with views
    makes `(list of images, targets)`, one with splits images and targets of splits × N rows. Prediction batches are
    `(images, indices)`, and `sample_name(i)` gives the file of an index.

    Training shuffles globally, a new order each epoch; evaluation delivers every sample exactly once over all ranks.
    All ranks make equal numbers of steps. Shards follow the trainer's strategy, checkpoints resume to the sample.

    Args:
        train: a path (class sub-folders, as torchvision's ImageFolder) or a source.
        val: the same, labelled with the training classes.
        test: the same, labelled with the training classes.
        predict: a path (its images at any depth, class sub-folders or not) or a source; labels are not used.
        batch_size: training images per device and step.
        eval_batch_size: evaluation images per device and step; `batch_size` if None.
        image_size: height and width of the images, pixels; for training, unless `train_recipe.image_size` says
            otherwise.
        train_recipe: what happens to training images.
        eval_recipe: what happens to the others.
        decode: where DALI decodes, "cpu", "gpu", or "auto": the trainer's device.
        dtype: "float32", "float16", "bfloat16", or "uint8" for raw pixels.
        channels_last: memory format of the images.
        num_threads: CPU threads of a DALI pipeline, or "auto": this process's share of the cores, at most 16, or 4
            where a GPU decodes JPEGs in hardware.
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
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.image_size, self.train_recipe, self.eval_recipe = image_size, train_recipe, eval_recipe
        self.decode, self.dtype, self.channels_last = decode, dtype, channels_last
        self.num_threads, self.prefetch, self.hw_decoder_load = num_threads, prefetch, hw_decoder_load
        self.drop_last, self.seed, self.on_bad_image = drop_last, seed, on_bad_image
        self._check_attributes()
        given = {"train": train, "val": val, "test": test, "predict": predict}
        self._given: dict[str, Source] = {
            stage: as_source(value, labelled=stage != "predict") for stage, value in given.items() if value is not None
        }
        self._labelled: dict[str, Source] = {}
        self._places: dict[str, _Place] = {}
        self._fitting: pl.Trainer | None = None  # whose fit is running; `trainer` is whoever came last
        self._loaders: dict[str, Loader] = {}
        self._made: dict[str, _Made] = {}
        self._restored: TrainingState | None = None  # what a checkpoint says, until the next fit
        self._ended: TrainingState | None = None  # where training was when its loader was closed
        self._labels_of_checkpoint: _Labels | None = None  # what labels mean, where no training data is given
        self._bad_images: dict[str, str] = {}  # of loaders that are gone

    def _check_attributes(self) -> None:
        """Refuse what an attribute cannot be: as an argument, or as it was set since."""
        self.batch_size = whole("batch_size", self.batch_size)
        if self.eval_batch_size is not None:
            self.eval_batch_size = whole("eval_batch_size", self.eval_batch_size)
        self.image_size, self.prefetch = whole("image_size", self.image_size), whole("prefetch", self.prefetch)
        if self.num_threads != "auto":
            self.num_threads = whole("num_threads", self.num_threads)
        if self.hw_decoder_load != "auto":
            share("hw_decoder_load", self.hw_decoder_load)
        if self.seed is not None:
            self.seed = whole("seed", self.seed, least=0, most=2**32 - 1)
        one_of("decode", self.decode, ("auto", "cpu", "gpu"))
        one_of("dtype", self.dtype, tuple(DTYPES))
        one_of("on_bad_image", self.on_bad_image, get_args(OnBadImage))
        one_of("channels_last", self.channels_last, (True, False))
        one_of("drop_last", self.drop_last, (True, False))
        instance("train_recipe", self.train_recipe, TrainRecipe)
        instance("eval_recipe", self.eval_recipe, EvalRecipe)

    # ---- what is in the data -------------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, the position being the label; None when they are unknown. Scans the data.

        They are those of the training data; without any, of the checkpoint that was loaded; without one, of the data
        there is.
        """
        if self._labels_of_checkpoint is not None:
            return self._labels_of_checkpoint.classes
        return self._labels().classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Class name to label; empty when the names are unknown."""
        return {name: label for label, name in enumerate(self.classes or ())}

    @property
    def num_classes(self) -> int:
        """Number of classes: the size of the model's output."""
        known = self._labels_of_checkpoint
        return len(known.classes) if known is not None and known.classes else self._labels().num_classes

    def sample_name(self, index: int, stage: Stage = "predict") -> str:
        """The file (or record key) of a sample.

        Args:
            index: as a prediction batch hands it over.
            stage: whose sample it is.
        """
        return self._source(stage).sample_name(int(index))

    def targets(self, stage: Stage = "train") -> Targets | None:
        """Labels of a stage, under the training classes, in sample order; read-only.

        Args:
            stage: whose labels.

        Returns:
            int64 (N,) class numbers, or float32 (N,) or (N, C). None if there is no such data here, if it has no
            labels, or if they are not known before samples are fetched.
        """
        one_of("stage", stage, STAGES)
        if stage not in self._given or self._has_loader_of_its_own(stage):
            return None
        source = self._source(stage)
        return source.targets if source.knows_targets and source.has_labels else None

    @property
    def bad_images(self) -> dict[str, str]:
        """File to reason, of every image that was substituted so far in this process."""
        for loader in self._loaders.values():
            found = dict(loader.bad.reasons)  # a copy: a loader's worker may be adding to it
            self._bad_images.update({loader.source.location(index): reason for index, reason in found.items()})
        return dict(self._bad_images)

    @property
    def decode_device(self) -> Literal["cpu", "gpu"]:
        """Where DALI decodes; known once the device is (`setup` or `setup_for`)."""
        return self._decodes_on(self._require_place())

    def _decodes_on(self, place: _Place) -> Literal["cpu", "gpu"]:
        if self.decode != "auto":
            return self.decode
        return "gpu" if place.device.type == "cuda" else "cpu"

    def _labels(self) -> Source:
        for stage in STAGES:
            if stage in self._given:
                return self._given[stage]
        raise ValueError("ImageDataModule has no data: give it train, val, test or predict")

    def _source(self, stage: Stage) -> Source:
        """The data of a stage, under the training classes."""
        one_of("stage", stage, STAGES)
        if stage not in self._given:
            raise ValueError(f"ImageDataModule has no {stage} data: give it {stage}=")
        if stage not in self._labelled:
            source = self._given[stage]
            train = self._given.get("train")
            classes = self.classes if train is not None or self._labels_of_checkpoint is not None else None
            if stage in ("val", "test"):
                if classes is not None:
                    source = source.with_classes(classes)
                    if train is not None:
                        require_same_kind(stage, source, train)
                elif train is not None:
                    require_same_numbers(stage, source, train)
                elif self._labels_of_checkpoint is not None:
                    require_no_names(stage, source, "checkpoint's training data")
            self._labelled[stage] = source
        return self._labelled[stage]

    # ---- where it runs -------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Called by the Trainer: look at the data, and refuse now what cannot work later."""
        trainer = self.trainer
        if trainer is None:
            raise RuntimeError(
                f"setup({stage!r}) is for a Trainer that has this module; without one call setup_for(device)"
            )
        shard = trainer.distributed_sampler_kwargs or {"num_replicas": 1, "rank": 0}
        device = trainer.strategy.root_device
        place = _Place(device, shard["rank"], shard["num_replicas"], max(1, trainer.num_devices))
        required, *others = _STAGES_OF[stage]
        if stage == "fit":
            self._forget_training()
            self._fitting = trainer
            callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
            ours = resume.ContinueEpoch | AnnounceBackward | LimitStepsAhead
            callbacks[:] = [c for c in callbacks if not isinstance(c, ours)]
            callbacks += [
                resume.ContinueEpoch(self._resumed_place, self._end_resumed_epoch),
                AnnounceBackward(lambda: self._loaders.get("train")),
                LimitStepsAhead(),
            ]
            if "val" not in self._given and not self._has_loader_of_its_own("val"):
                # How Lightning tells that there is no validation; it would warn of an empty loader.
                vars(self)["val_dataloader"] = super().val_dataloader
        stages = tuple(s for s in others if s in self._given)
        if required in self._given or not self._has_loader_of_its_own(required):
            stages = (required, *stages)
        self._check(stages, place)

    def _has_loader_of_its_own(self, stage: Stage) -> bool:
        """Whether a subclass brings the loader of a stage, for which no data need be given here then."""
        name = f"{stage}_dataloader"
        return getattr(type(self), name) is not getattr(ImageDataModule, name)

    def setup_for(
        self, device: str | torch.device, rank: int = 0, world: int = 1, local_world: int | None = None
    ) -> ImageDataModule:
        """Say, outside of a Trainer (Fabric, a plain loop), what a Trainer would have said; returns itself.

        Args:
            device: where batches are handed over: the CPU or a CUDA device.
            rank: this process, 0..world-1.
            world: number of processes that share the data.
            local_world: how many of them are on this machine; `world` if None.

        Raises:
            ValueError: there is no such device, the ranks make no sense, or the data cannot be used.
        """
        world = whole("world", world)
        rank = whole("rank", rank, least=0, most=world - 1)
        local_world = whole("local_world", local_world) if local_world is not None else world
        self._labels()  # some data is given
        waiting = self._restored if "train" not in self._loaders else None  # loaded, and not used yet
        self._forget_training()
        self._restored = waiting
        self.trainer = None  # a Trainer that had this module before has no say any more
        place = _Place(torch_device(device), rank, world, local_world)
        self._check(tuple(s for s in STAGES if s in self._given), place)
        return self

    def _forget_training(self) -> None:
        """Begin anew: nothing of an earlier run counts."""
        self._close_loaders(STAGES)
        self._fitting = self._restored = self._ended = None
        vars(self).pop("val_dataloader", None)  # see `setup`

    def _check(self, stages: tuple[Stage, ...], place: _Place) -> None:
        self._check_attributes()
        for stage in stages:
            self._places.pop(stage, None)  # so that the last one set up is the last one here
            self._places[stage] = place
        if place.device.type not in ("cpu", "cuda"):
            raise ValueError(f"batches can be handed over on the CPU or on CUDA devices, got device {place.device}")
        if self.decode == "gpu" and place.device.type != "cuda":
            raise ValueError(f'decode="gpu" needs batches on a CUDA device, got {place.device}: {why_no_cuda()}')
        if self._decodes_on(place) == "gpu":
            cuda_queues.warn_if_few()
        if "train" in stages:
            self._check_pairs()
        with warnings.catch_warnings():
            if place.rank:  # the first rank looks at the same data and says it once
                warnings.simplefilter("ignore", UserWarning)
            for stage in stages:
                source = self._source(stage)
                source.check()
                self._plan(stage)
                if not getattr(source, "cached", False):
                    require_dali()

    def _check_pairs(self) -> None:
        if self.train_recipe.mix is not None and self.batch_size % 2:
            raise ValueError(
                f"train_recipe.mix pairs the images of a batch: batch_size must be even, got {self.batch_size}"
            )

    def _require_place(self, stage: Stage | None = None) -> _Place:
        """Where a stage runs: where it was set up, or the last one was (a `val_dataloader` may give test data too)."""
        last = next(reversed(self._places.values()), None)
        place = last if stage is None else self._places.get(stage, last)
        if place is None:
            raise RuntimeError(
                "the device is not known yet: let a Trainer use this data module, or call setup_for(device) first"
            )
        return place

    # ---- loaders -------------------------------------------------------------------------------------------------

    def train_dataloader(self) -> Loader:
        """Training batches."""
        return self._loader("train")

    def val_dataloader(self) -> Loader:
        """Validation batches."""
        return self._loader("val")

    def test_dataloader(self) -> Loader:
        """Test batches."""
        return self._loader("test")

    def predict_dataloader(self) -> Loader:
        """Prediction batches `(images, indices)`, in the order of the data.

        The indices say which samples they are; Lightning does not know, and gives writers no `batch_indices`.
        """
        return self._loader("predict")

    def _loader(self, stage: Stage) -> Loader:
        """The stage's loader: the one there is, unless an attribute (batch or image size, a recipe) was changed."""
        self._check_attributes()
        if stage == "train":
            self._check_pairs()
        source, place = self._source(stage), self._require_place(stage)
        output = Output(place.device, DTYPES[self.dtype], self.channels_last, indices=stage == "predict")
        made = _Made(source, self._plan(stage), self._decoding(stage), output, self.on_bad_image)
        former = self._loaders.get(stage)
        if former is not None and self._made[stage] == made:
            return former
        decoding = best_hw_decoder_load(made.decoding, source) if self.hw_decoder_load == "auto" else made.decoding
        fit = self._fitting if stage == "train" else None
        loader = Loader(
            source,
            made.plan,
            decoding,
            output,
            seed=self._seed(),
            on_bad_image=self.on_bad_image,
            locate=partial(resume.position, fit) if fit is not None else None,
        )
        self._loaders[stage], self._made[stage] = loader, made
        if stage == "train":
            self._apply_restored()
        if former is not None:
            loader.follow(former)
            former.close()
        return loader

    def _batch_size(self, stage: Stage) -> int:
        if stage == "train" or self.eval_batch_size is None:
            return self.batch_size
        return self.eval_batch_size

    def plan(self, stage: Stage, rank: int = 0, world: int = 1) -> Plan:
        """Which samples come when in a stage, for any rank of any number of them; no device and no Trainer is needed.

        Args:
            stage: "train", "val", "test" or "predict".
            rank: 0..world-1.
            world: number of processes that share the data.

        Raises:
            ValueError: no such data was given, or it cannot be dealt to so many ranks.
        """
        source, training = self._source(stage), stage == "train"
        overfit = self._fitting is not None and self._fitting.overfit_batches > 0  # type: ignore[attr-defined]
        try:
            sampler = source.sampler() if training and not overfit else None
            return Plan(
                size=len(source) if sampler is None else sampler.size,
                batch_size=self._batch_size(stage),
                rank=rank,
                world=world,
                shuffle=training and not overfit,
                drop_last=training and self.drop_last,
                seed=self._seed(),
                repeats=self.train_recipe.repeats if training and not overfit else 1,
                sampler=sampler,
            )
        except ValueError as error:
            raise ValueError(f"{stage} data: {error}") from None

    def _plan(self, stage: Stage) -> Plan:
        place = self._require_place(stage)
        return self.plan(stage, place.rank, place.world)

    def _decoding(self, stage: Stage) -> Decoding:
        place, training = self._require_place(stage), stage == "train"
        device = self._decodes_on(place)
        cores = len(os.sched_getaffinity(0)) // place.local_world
        most = threads_enough(place.device.index) if device == "gpu" else 16
        threads = max(1, min(most, cores)) if self.num_threads == "auto" else self.num_threads
        recipe = self.train_recipe if training else self.eval_recipe
        return Decoding(
            recipe=recipe,
            image_size=self.image_size,
            batch_size=max(2, self._batch_size(stage)),  # batches of one may have to take a second row, see plan.py
            device=device,
            device_id=place.device.index,
            num_threads=threads,
            prefetch=self.prefetch,
            hw_decoder_load=self.hw_decoder_load if self.hw_decoder_load != "auto" else 1.0,
            feed=self._source(stage).feed,
            packed=resizes_natively(recipe, device, place.device),
        )

    def _seed(self) -> int:
        return self.seed if self.seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))

    # ---- resuming ------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where training is, the same on every rank; plain values only. Empty before the first training loader."""
        state = self._training_state()
        return {} if state is None else state.to_dict()

    def _training_state(self) -> TrainingState | None:
        train = self._loaders.get("train")
        if train is None:
            return self._restored or self._ended
        step_back = resume.steps_in_flight(self._fitting) if self._fitting is not None else 0
        place = train.place
        place = dataclasses.replace(place, step=max(0, place.step - step_back))
        return TrainingState(
            epoch=place.epoch,
            consumed=train.consumed(place),
            seed=train.seed,
            fingerprint=train.source.fingerprint(),
            size=len(train.source),
            classes=list(self.classes) if self.classes is not None else None,
            recipe=self._pixels,
            repeats=train.decoding.recipe.repeats if isinstance(train.decoding.recipe, TrainRecipe) else 1,
            cycle=place.cycle,
        )

    @property
    def _pixels(self) -> str:
        """What the pixels of a training sample depend on, besides its file."""
        return repr((self.train_recipe, self.image_size))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken; works before or after the loaders were asked for.

        Raises:
            ValueError: the training data or its classes are not those of the checkpoint.
        """
        if not state_dict:
            return
        state = TrainingState.from_dict(state_dict)
        if "train" not in self._given:
            self._labels_of_checkpoint = _Labels(tuple(state.classes) if state.classes is not None else None)
            self._labelled.clear()
            return
        state.require_classes(self.classes)
        if self.trainer is not None and self.trainer.state.fn not in (None, TrainerFn.FITTING):
            return
        state.require_data(self._source("train"), self.train_recipe.repeats)
        if self.seed is not None and self.seed != state.seed:
            warnings.warn(
                f"seed={self.seed} is ignored: the checkpoint continues with its own, {state.seed}", stacklevel=2
            )
        if self._pixels != state.recipe:
            warnings.warn(
                "train_recipe or image_size differ from the checkpoint's: same samples, other pixels", stacklevel=2
            )
        self._restored = state
        self._apply_restored()

    def _apply_restored(self) -> None:
        loader, state = self._loaders.get("train"), self._restored
        if loader is not None and state is not None:
            loader.resume(state.epoch, state.consumed, state.seed, state.cycle)

    def _resumed_place(self) -> tuple[int, int] | None:
        loader = self._loaders.get("train")
        if loader is None or self._restored is None:
            return None
        cycled = self._restored.cycle * len(loader)
        return self._restored.epoch, cycled + loader.plan.first_step(self._restored.consumed)

    def _end_resumed_epoch(self) -> None:
        self._loaders["train"].end_resumed_epoch()

    # ---- the end -------------------------------------------------------------------------------------------------

    def teardown(self, stage: str) -> None:
        """Stop the pipelines of a stage ("fit", "validate", "test", "predict"; else all) and free their memory."""
        beside = tuple(s for s in STAGES if s not in self._places)  # asked for without a set-up of their own
        self._close_loaders((*_STAGES_OF.get(stage, STAGES), *beside))
        if stage not in _STAGES_OF or stage == "fit":
            self._fitting = None
            vars(self).pop("val_dataloader", None)
        release_memory()

    def on_exception(self, exception: BaseException) -> None:
        """The Trainer calls no teardown after an exception."""
        self.teardown("exception")

    def _close_loaders(self, stages: tuple[Stage, ...]) -> None:
        if "train" in stages and "train" in self._loaders:
            self._ended, self._restored = self._training_state(), None  # for a checkpoint saved when the fit is over
        _ = self.bad_images
        for stage in stages:
            loader = self._loaders.get(stage)
            if loader is None:
                continue
            loader.close()
            if stage == "val" and "train" in self._loaders and "train" not in stages:
                continue  # a validation of its own, within a fit that will go on with this loader
            del self._loaders[stage], self._made[stage]

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what belongs to this process: the loaders, and the Trainer, which has them too."""
        state = {**self.__dict__, "_loaders": {}, "_made": {}, "_fitting": None, "trainer": None}
        state.pop("val_dataloader", None)
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> ImageDataModule:
        """A module of the same settings, which no Trainer has yet."""
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        other.__dict__.update(copy.deepcopy(self.__getstate__(), memo))
        return other

    def __str__(self) -> str:
        """One line; the inherited one would ask for every loader."""
        parts = ", ".join(f"{stage}={source!r}" for stage, source in self._given.items())
        return f"ImageDataModule({parts}, batch_size={self.batch_size}, image_size={self.image_size})"

    __repr__ = __str__
