"""The data module inside Lightning's Trainer, one process."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.tuner import Tuner

from lightning_gpuaug import ImageDataModule
from lightning_gpuaug.loader import Loader
from tests.images import numbered
from tests.tracking import SaveEverywhere, Tracking, trainer


@pytest.fixture(autouse=True)
def _quiet_lightning() -> None:
    for text in (
        "does not have many workers",
        "GPU available",
        "Starting from v1.9",
        "LeafSpec",
        "TreeSpec",
        "infer the batch indices",
    ):
        warnings.filterwarnings("ignore", message=f".*{text}.*")


@pytest.fixture(params=[False, True], ids=["here", "worker"])
def _ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches made in the Trainer's thread, as on a CPU, and one ahead in a worker, as on a GPU."""
    monkeypatch.setattr("lightning_gpuaug.data.Loader", partial(Loader, ahead=request.param))


def module(folder: Path, n: int, batch_size: int = 2, **options: object) -> ImageDataModule:
    source = numbered(folder / f"data{n}", n)
    options = {"val": source, "image_size": 8, "num_threads": 1, **options}
    return ImageDataModule(train=source, batch_size=batch_size, **options)  # type: ignore[arg-type]


def test_the_remainder_is_kept_when_asked(tmp_path: Path) -> None:
    fit = trainer(tmp_path, max_epochs=3)
    model = Tracking()
    fit.fit(model, module(tmp_path, 5, drop_last=False))
    assert fit.global_step == 9
    for epoch in range(3):
        assert sorted(sum((labels for e, labels, _ in model.train_steps if e == epoch), [])) == list(range(5))


def test_sanity_check_and_limits(tmp_path: Path) -> None:
    model = Tracking()
    trainer(tmp_path, max_epochs=2, limit_val_batches=2, num_sanity_val_steps=1).fit(model, module(tmp_path, 7))
    assert [labels for _, labels, _ in model.val_steps] == [[0, 1], [2, 3]] * 2
    model = Tracking()
    trainer(tmp_path, max_epochs=1, num_sanity_val_steps=2).fit(model, module(tmp_path, 7))
    assert [labels for _, labels, _ in model.val_steps] == [[0, 1], [2, 3], [4, 5], [6]]


@pytest.mark.usefixtures("_ahead")
def test_limited_training_epochs_are_those_of_whole_ones(tmp_path: Path) -> None:
    whole, limited = Tracking(), Tracking()
    trainer(tmp_path, max_epochs=3, limit_val_batches=0).fit(whole, module(tmp_path, 12))
    trainer(tmp_path, max_epochs=3, limit_train_batches=2, limit_val_batches=0).fit(limited, module(tmp_path, 12))
    heads = [[s for s in whole.train_steps if s[0] == epoch][:2] for epoch in range(3)]
    assert limited.train_steps == sum(heads, [])


def test_overfit_sees_the_same_batch(tmp_path: Path) -> None:
    model = Tracking()
    trainer(tmp_path, max_epochs=3, overfit_batches=1).fit(model, module(tmp_path, 7))
    assert [labels for _, labels, _ in model.train_steps] == [[0, 1]] * 3
    assert [labels for _, labels, _ in model.val_steps] == [[0, 1]] * 3


def test_validation_in_mid_epoch(tmp_path: Path) -> None:
    plain, interrupted = Tracking(), Tracking()
    trainer(tmp_path, max_epochs=2, limit_val_batches=0).fit(plain, module(tmp_path, 12))
    trainer(tmp_path, max_epochs=2, val_check_interval=0.5).fit(interrupted, module(tmp_path, 12))
    assert interrupted.train_steps == plain.train_steps
    assert len(interrupted.val_steps) == 2 * 2 * 6


def test_validate_twice_and_test(tmp_path: Path) -> None:
    dm, run = module(tmp_path, 7), trainer(tmp_path)
    dm.setup_for("cpu")
    model = Tracking()
    results = []
    for call in (run.validate, run.validate):
        model.val_steps.clear()
        call(model, datamodule=dm, verbose=False)
        results.append([(labels, total) for _, labels, total in model.val_steps])
    assert results[0] == results[1]
    assert sum((labels for labels, _ in results[0]), []) == list(range(7))


def test_early_stop_and_fit_again(tmp_path: Path) -> None:
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *args: object) -> None:
            if trainer.global_step == 4:
                trainer.should_stop = True

    dm, model = module(tmp_path, 12), Tracking()
    run = trainer(tmp_path, max_epochs=5, callbacks=[Stop()], limit_val_batches=0)
    run.fit(model, dm)
    assert len(model.train_steps) in (4, 6)
    fresh = Tracking()
    trainer(tmp_path, max_epochs=1, limit_val_batches=0).fit(fresh, dm)  # another trainer starts from the first epoch
    assert (
        fresh.train_steps == [s for s in model.train_steps if s[0] == 0][: len(fresh.train_steps)]
        or len(fresh.train_steps) == 6
    )
    assert [s[0] for s in fresh.train_steps] == [0] * 6


def test_predict_gives_a_row_a_sample(tmp_path: Path) -> None:
    class Writer(pl.callbacks.BasePredictionWriter):
        names: list[str] = []  # noqa: RUF012

        def write_on_batch_end(self, trainer, pl_module, prediction, batch_indices, *args) -> None:  # type: ignore[no-untyped-def]
            self.names += [Path(trainer.datamodule.sample_name(i)).name for i in prediction]

    writer = Writer("batch")
    dm = module(tmp_path, 5, predict=numbered(tmp_path / "p", 5))
    rows = trainer(tmp_path, callbacks=[writer]).predict(Tracking(), dm)
    assert rows == [[0, 1], [2, 3], [4]]
    assert writer.names == [f"{i:06d}.jpg" for i in range(5)]


def test_memory_returns_and_the_loaders_go(tmp_path: Path) -> None:
    dm = module(tmp_path, 6)
    trainer(tmp_path, max_epochs=1).fit(Tracking(), dm)
    assert not dm._loaders

    class Boom(pl.Callback):
        def on_train_batch_end(self, *args: object) -> None:
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        trainer(tmp_path, max_epochs=1, callbacks=[Boom()]).fit(Tracking(), dm)
    assert not dm._loaders


@pytest.mark.usefixtures("_ahead")
@pytest.mark.parametrize("limit", [{"max_epochs": 3}, {"max_steps": 11, "max_epochs": -1}], ids=["epochs", "steps"])
@pytest.mark.parametrize("one_cycle", [False, True])
def test_resume_from_everywhere(tmp_path: Path, limit: dict[str, int], one_cycle: bool) -> None:
    """Every checkpoint a run can write continues it: same samples, same pixels, same learning rates."""
    save = SaveEverywhere(tmp_path)
    straight = Tracking(one_cycle)
    trainer(tmp_path, callbacks=[save], val_check_interval=3, **limit).fit(straight, module(tmp_path, 8))
    assert len(straight.train_steps) == limit.get("max_steps", 12)
    assert {hook for hook, _, _ in save.saved} == {"batch_end", "validation_end", "epoch_end"}
    for hook, path, done in save.saved:
        resumed = Tracking(one_cycle)
        run = trainer(tmp_path, val_check_interval=3, **limit)
        run.fit(resumed, module(tmp_path, 8), ckpt_path=path)
        assert resumed.train_steps == straight.train_steps[done:], (hook, done)
        assert resumed.lrs == straight.lrs[done:], (hook, done)
        assert run.global_step == len(straight.train_steps), (hook, done)


@pytest.mark.usefixtures("_ahead")
@pytest.mark.parametrize("limit", [{"max_epochs": 3}, {"max_steps": 5, "max_epochs": -1}, {"max_steps": 6}], ids=str)
@pytest.mark.parametrize("epoch", [{"limit_train_batches": 2}, {"overfit_batches": 2}], ids=str)
@pytest.mark.parametrize("validation", [{"limit_val_batches": 0}, {"check_val_every_n_epoch": 2}], ids=str)
def test_epochs_of_fewer_batches_are_resumed_from_everywhere(
    tmp_path: Path, limit: dict[str, int], epoch: dict[str, int], validation: dict[str, int]
) -> None:
    """The data has more batches, which no resumed epoch may go on to."""
    options = {**limit, **epoch, **validation, "num_sanity_val_steps": 0}
    save, straight = SaveEverywhere(tmp_path), Tracking()
    trainer(tmp_path, callbacks=[save], **options).fit(straight, module(tmp_path, 10))
    assert [step[0] for step in straight.train_steps] == [0, 0, 1, 1, 2, 2][: limit.get("max_steps", 6)]
    for hook, path, done in save.saved:
        resumed = Tracking()
        run = trainer(tmp_path, **options)
        run.fit(resumed, module(tmp_path, 10), ckpt_path=path)
        assert resumed.train_steps == straight.train_steps[done:], (hook, done)
        assert run.global_step == len(straight.train_steps), (hook, done)


@pytest.mark.usefixtures("_ahead")
def test_resume_after_an_exception_in_mid_step(tmp_path: Path) -> None:
    class Boom(pl.Callback):
        def on_before_optimizer_step(self, trainer: pl.Trainer, *args: object) -> None:
            if trainer.global_step == 5:
                trainer.save_checkpoint(tmp_path / "boom.ckpt")
                raise RuntimeError("boom")

    straight, broken, resumed = Tracking(), Tracking(), Tracking()
    trainer(tmp_path, max_epochs=3, limit_val_batches=0).fit(straight, module(tmp_path, 8))
    with pytest.raises(RuntimeError, match="boom"):
        trainer(tmp_path, max_epochs=3, limit_val_batches=0, callbacks=[Boom()]).fit(broken, module(tmp_path, 8))
    trainer(tmp_path, max_epochs=3, limit_val_batches=0).fit(
        resumed, module(tmp_path, 8), ckpt_path=tmp_path / "boom.ckpt"
    )
    assert resumed.train_steps == straight.train_steps[5:]


def test_resume_with_another_batch_size(tmp_path: Path) -> None:
    """The step counter moves to where the rest of the epoch begins; every sample once; later epochs are whole."""
    save = SaveEverywhere(tmp_path)
    straight = Tracking()
    trainer(tmp_path, callbacks=[save], max_epochs=2, limit_val_batches=0).fit(straight, module(tmp_path, 24, 2))
    for batch_size in (1, 3, 4, 6):
        for hook, path, done in save.saved:
            if not 0 < done <= 12 or hook != "batch_end":
                continue
            resumed = Tracking()
            trainer(tmp_path, max_epochs=2, limit_val_batches=0).fit(
                resumed, module(tmp_path, 24, batch_size), ckpt_path=path
            )
            head = sum((labels for _, labels, _ in straight.train_steps[:done]), [])
            tail = sum((labels for epoch, labels, _ in resumed.train_steps if epoch == 0), [])
            assert len(set(head + tail)) == len(head + tail)
            assert 24 - len(head + tail) < batch_size
            later = sum((labels for epoch, labels, _ in resumed.train_steps if epoch == 1), [])
            assert sorted(later) == list(range(24))


@pytest.mark.parametrize(
    ("done", "batch_size", "limit", "left"),
    [(1, 2, 4, 2), (2, 2, 4, 0), (3, 2, 4, 0), (2, 2, 3, 0), (3, 1, 4, 0), (2, 4, 2, 0), (3, 4, 2, 0), (1, 8, 2, 2)],
)
def test_resume_of_an_epoch_that_another_limit_or_batch_size_ends(
    tmp_path: Path, done: int, batch_size: int, limit: int, left: int
) -> None:
    """After `done` steps of 4 samples. No step is left where the samples taken are `limit` batches or more."""
    save, straight = SaveEverywhere(tmp_path), Tracking()
    options = {"max_epochs": 2, "limit_val_batches": 0}
    run = trainer(tmp_path, callbacks=[save], limit_train_batches=4, **options)
    run.fit(straight, module(tmp_path, 20, 4))
    (path,) = (path for hook, path, steps in save.saved if hook == "batch_end" and steps == done)
    resumed = Tracking()
    run = trainer(tmp_path, limit_train_batches=limit, **options)
    run.fit(resumed, module(tmp_path, 20, batch_size), ckpt_path=path)
    assert [step[0] for step in resumed.train_steps] == [0] * left + [1] * limit
    assert run.global_step == done + left + limit
    taken = sum((labels for epoch, labels, _ in straight.train_steps[:done] + resumed.train_steps if epoch == 0), [])
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize("batch_size", [2, 1, 4])
@pytest.mark.parametrize("options", [{"limit_val_batches": 0}, {}, {"val_check_interval": 0.5}], ids=str)
def test_resume_from_the_beginning_of_an_epoch(tmp_path: Path, batch_size: int, options: dict[str, float]) -> None:
    class Save(pl.Callback):
        def on_train_epoch_start(self, trainer: pl.Trainer, *args: object) -> None:
            if trainer.current_epoch == 1:
                trainer.save_checkpoint(tmp_path / "begun.ckpt")

    options = {"max_epochs": 3, **options}
    straight, resumed = Tracking(), Tracking()
    trainer(tmp_path, callbacks=[Save()], **options).fit(straight, module(tmp_path, 8, 2))
    trainer(tmp_path, **options).fit(resumed, module(tmp_path, 8, batch_size), ckpt_path=tmp_path / "begun.ckpt")
    if batch_size == 2:
        assert resumed.train_steps == straight.train_steps[4:]
        assert resumed.val_steps == [step for step in straight.val_steps if step[0] > 0]
    for epoch in (1, 2):
        assert sorted(sum((labels for e, labels, _ in resumed.train_steps if e == epoch), [])) == list(range(8))


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
def test_a_loader_alone_is_resumed_too(tmp_path: Path) -> None:
    """Without the data module it keeps its place itself, which Lightning asks it to restore within an epoch."""
    options = {"max_epochs": 2, "limit_val_batches": 0}
    save, straight = SaveEverywhere(tmp_path), Tracking()
    dm = module(tmp_path, 8).setup_for("cpu")
    trainer(tmp_path, callbacks=[save], **options).fit(straight, dm.train_dataloader())
    for hook, path, done in save.saved:
        if done % 4 == 0:
            continue
        resumed = Tracking()
        again = module(tmp_path, 8).setup_for("cpu")
        trainer(tmp_path, **options).fit(resumed, again.train_dataloader(), ckpt_path=path)
        assert resumed.train_steps == straight.train_steps[done:], (hook, done)
    state = dm.train_dataloader().state_dict()
    assert set(state) == {"epoch", "consumed", "seed", "fingerprint"}
    with pytest.raises(ValueError, match="the data is not the state's"):
        module(tmp_path, 6).setup_for("cpu").train_dataloader().load_state_dict(state)
    assert dm.val_dataloader().state_dict() == {}


def test_setup_without_a_trainer_says_what_to_call(tmp_path: Path) -> None:
    with pytest.raises(
        RuntimeError, match=r"setup\('fit'\) is for a Trainer .*; without one call setup_for\(device\)$"
    ):
        module(tmp_path, 4).setup("fit")


def test_checkpoints_load_with_weights_only(tmp_path: Path) -> None:
    save = SaveEverywhere(tmp_path)
    trainer(tmp_path, callbacks=[save], max_epochs=1, limit_val_batches=0).fit(Tracking(), module(tmp_path, 4))
    state = torch.load(save.saved[0][1], weights_only=True)
    assert state["ImageDataModule"]["consumed"] == 2


def test_resume_refuses_other_data(tmp_path: Path) -> None:
    save = SaveEverywhere(tmp_path)
    trainer(tmp_path, callbacks=[save], max_epochs=1, limit_val_batches=0).fit(Tracking(), module(tmp_path, 4))
    with pytest.raises(ValueError, match="not the checkpoint's"):
        trainer(tmp_path, max_epochs=2).fit(Tracking(), module(tmp_path, 6), ckpt_path=save.saved[0][1])


def test_setup_refuses_what_cannot_work(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'decode="gpu" needs .* CUDA'):
        trainer(tmp_path, max_epochs=1).fit(Tracking(), module(tmp_path, 4, decode="gpu"))
    with pytest.raises(ValueError, match="train data: 0 steps"):
        trainer(tmp_path, max_epochs=1).fit(Tracking(), module(tmp_path, 3, batch_size=8))


def test_printing_asks_for_no_loader(tmp_path: Path) -> None:
    dm = module(tmp_path, 4)
    assert "batch_size=2" in str(dm)
    assert not dm._loaders


def epochs(model: Tracking) -> list[list[int]]:
    """Training samples, epoch by epoch."""
    last = max(epoch for epoch, _, _ in model.train_steps)
    return [sum((labels for e, labels, _ in model.train_steps if e == epoch), []) for epoch in range(last + 1)]


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, list[int], float]]:
    """The training steps of three undisturbed epochs of 12 samples."""
    folder = tmp_path_factory.mktemp("usual")
    model = Tracking()
    trainer(folder, max_epochs=3, limit_val_batches=0).fit(model, module(folder, 12))
    return model.train_steps


@pytest.mark.parametrize(
    "options",
    [
        {"reload_dataloaders_every_n_epochs": 1},
        {"accumulate_grad_batches": 4},
        {"val_check_interval": 5, "check_val_every_n_epoch": None},
        {"val_check_interval": 1},
        {"check_val_every_n_epoch": 2},
        {"max_time": "00:01:00:00"},
        {"limit_train_batches": 1.0, "limit_val_batches": 0.5},
        {"num_sanity_val_steps": -1},
    ],
    ids=str,
)
def test_the_order_does_not_depend_on_how_the_loop_is_driven(
    tmp_path: Path, usual: list[object], options: dict[str, object]
) -> None:
    model = Tracking()
    trainer(tmp_path, max_epochs=3, **options).fit(model, module(tmp_path, 12))
    assert model.train_steps == usual


def test_validation_across_the_ends_of_epochs(tmp_path: Path) -> None:
    """Every 5 steps of 6-step epochs: each validation is whole."""
    model = Tracking()
    options = {"val_check_interval": 5, "check_val_every_n_epoch": None, "num_sanity_val_steps": 0}
    trainer(tmp_path, max_epochs=3, **options).fit(model, module(tmp_path, 12))
    seen = [labels for _, labels, _ in model.val_steps]
    assert seen == [[2 * i, 2 * i + 1] for i in range(6)] * 3


def test_limits_of_one_batch_and_of_everything(tmp_path: Path, usual: list[tuple[int, list[int], float]]) -> None:
    for limit, steps in ((1, 1), (0.5, 3), (1.0, 6)):
        model = Tracking()
        trainer(tmp_path, max_epochs=2, limit_train_batches=limit, limit_val_batches=0).fit(model, module(tmp_path, 12))
        assert model.train_steps == [*usual[:steps], *usual[6 : 6 + steps]], limit


def test_fast_dev_run(tmp_path: Path, usual: list[object]) -> None:
    model = Tracking()
    trainer(tmp_path, fast_dev_run=True).fit(model, module(tmp_path, 12))
    assert model.train_steps == usual[:1]
    assert [labels for _, labels, _ in model.val_steps] == [[0, 1]]


def test_out_of_time_in_mid_epoch(tmp_path: Path, usual: list[tuple[int, list[int], float]]) -> None:
    class Clock(pl.callbacks.Timer):
        def time_elapsed(self, stage: object = "train") -> float:
            return 1e9 if len(model.train_steps) == 8 else 0.0

    model = Tracking()
    dm = module(tmp_path, 12)
    trainer(tmp_path, max_epochs=3, limit_val_batches=0, callbacks=[Clock("00:00:10:00")]).fit(model, dm)
    assert model.train_steps == usual[:8]
    assert not dm._loaders


def test_one_trainer_fits_twice(tmp_path: Path, usual: list[object]) -> None:
    """Longer training with the same trainer and data goes on with the next epoch."""
    model, dm = Tracking(), module(tmp_path, 12)
    run = trainer(tmp_path, max_epochs=2)
    run.fit(model, dm)
    run.fit_loop.max_epochs = 3
    run.fit(model, dm)
    assert model.train_steps == usual


@pytest.mark.usefixtures("_ahead")
def test_interrupted_by_hand_then_fitted_again(tmp_path: Path, usual: list[object]) -> None:
    class CtrlC(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *args: object) -> None:
            if trainer.global_step == 8:
                raise KeyboardInterrupt

    dm = module(tmp_path, 12)
    with pytest.raises(SystemExit):
        trainer(tmp_path, max_epochs=3, callbacks=[CtrlC()]).fit(Tracking(), dm)
    assert not dm._loaders
    model = Tracking()
    trainer(tmp_path, max_epochs=3).fit(model, dm)
    assert model.train_steps == usual


@pytest.mark.usefixtures("_ahead")
def test_another_trainer_validates_within_a_fit(tmp_path: Path, usual: list[object]) -> None:
    """A callback with a trainer of its own does not disturb the epochs of the one that fits."""
    inner = Tracking()

    class Validate(pl.Callback):
        def on_train_epoch_end(self, fit: pl.Trainer, *args: object) -> None:
            trainer(tmp_path).validate(inner, datamodule=fit.datamodule, verbose=False)  # type: ignore[attr-defined]

        on_train_batch_start = on_train_epoch_end

    model, dm = Tracking(), module(tmp_path, 12)
    run = trainer(tmp_path, max_epochs=3, callbacks=[Validate()])
    run.fit(model, dm)
    assert model.train_steps == usual
    assert sum((labels for _, labels, _ in model.val_steps), []) == list(range(12)) * 3
    assert sum((labels for _, labels, _ in inner.val_steps), []) == list(range(12)) * 21
    assert not dm._loaders


def test_a_checkpoint_saved_after_the_fit_continues_it(tmp_path: Path, usual: list[object]) -> None:
    run = trainer(tmp_path, max_epochs=2)
    dm = module(tmp_path, 12)
    run.fit(Tracking(), dm)
    run.validate(Tracking(), dm, verbose=False)
    run.save_checkpoint(tmp_path / "late.ckpt")
    model = Tracking()
    run = trainer(tmp_path, max_epochs=3)
    run.fit(model, module(tmp_path, 12), ckpt_path=tmp_path / "late.ckpt")
    assert model.train_steps == usual[12:]
    run.save_checkpoint(tmp_path / "later.ckpt")
    assert torch.load(tmp_path / "later.ckpt")["ImageDataModule"]["epoch"] == 2
    with pytest.raises(ValueError, match="not the checkpoint's"):
        trainer(tmp_path, max_epochs=3).fit(Tracking(), module(tmp_path, 8), ckpt_path=tmp_path / "late.ckpt")


def test_one_trainer_with_two_data_modules_resumes_the_second(tmp_path: Path) -> None:
    """The place of a restored epoch comes from the module that is being fitted."""
    save = SaveEverywhere(tmp_path)
    straight = Tracking()
    trainer(tmp_path, max_epochs=1, limit_val_batches=0, callbacks=[save]).fit(straight, module(tmp_path, 12))
    path, done = save.saved[1][1:]
    run = trainer(tmp_path, max_epochs=1, limit_val_batches=0)
    run.fit(Tracking(), module(tmp_path, 6))
    model = Tracking()
    run.fit(model, module(tmp_path, 12, batch_size=1), ckpt_path=path)
    head = sum((labels for _, labels, _ in straight.train_steps[:done]), [])
    assert sorted(head + epochs(model)[0]) == list(range(12))


def test_resume_in_the_middle_of_an_accumulation(tmp_path: Path) -> None:
    save = SaveEverywhere(tmp_path)
    straight = Tracking()
    options = {"max_epochs": 2, "accumulate_grad_batches": 4, "limit_val_batches": 0}
    trainer(tmp_path, callbacks=[save], **options).fit(straight, module(tmp_path, 12))
    for hook, path, done in save.saved:
        resumed = Tracking()
        trainer(tmp_path, **options).fit(resumed, module(tmp_path, 12), ckpt_path=path)
        assert resumed.train_steps == straight.train_steps[done:], (hook, done)


def test_the_batch_size_finder_tries_what_it_says(tmp_path: Path) -> None:
    class Sizes(Tracking):
        def training_step(self, batch, batch_idx: int) -> torch.Tensor:  # type: ignore[no-untyped-def]
            sizes.append(len(batch[1]))
            return super().training_step(batch, batch_idx)

    sizes: list[int] = []
    dm = module(tmp_path, 12, batch_size=1)
    run = trainer(tmp_path, max_epochs=1, limit_val_batches=0)
    Tuner(run).scale_batch_size(Sizes(), datamodule=dm, max_trials=3, steps_per_trial=1, init_val=1)
    assert sizes == [1, 2, 4]
    assert dm.batch_size == 4


def test_plain_loaders_may_be_given_to_a_trainer(tmp_path: Path) -> None:
    """`fit(model, dm.train_dataloader())`: without the module, the loader counts its passes itself."""
    dm = module(tmp_path, 12).setup_for("cpu")
    model = Tracking()
    trainer(tmp_path, max_epochs=2).fit(model, dm.train_dataloader(), dm.val_dataloader())
    first, second = epochs(model)
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    dm.teardown("fit")


@pytest.mark.parametrize("stage", ["train", "val", "test"])
def test_a_subclass_may_bring_a_loader_of_its_own(tmp_path: Path, stage: str) -> None:
    """For which no data need be given; the other stages are as always."""

    class Own(ImageDataModule):
        pass

    rows = torch.utils.data.TensorDataset(torch.rand(6, 3, 8, 8), torch.arange(6))
    setattr(Own, f"{stage}_dataloader", lambda self: torch.utils.data.DataLoader(rows, batch_size=3))
    source = numbered(tmp_path, 4)
    given = {name: source for name in ("train", "val", "test") if name != stage}
    data, model = Own(batch_size=2, image_size=8, num_threads=1, **given), Tracking()
    run = trainer(tmp_path, max_epochs=1)
    run.fit(model, data)
    assert [len(labels) for _, labels, _ in model.train_steps] == ([3, 3] if stage == "train" else [2, 2])
    assert [len(labels) for _, labels, _ in model.val_steps] == ([3, 3] if stage == "val" else [2, 2])
    model.val_steps.clear()
    run.test(model, data, verbose=False)
    assert [len(labels) for _, labels, _ in model.val_steps] == ([3, 3] if stage == "test" else [2, 2])


def test_test_data_beside_validation_data(tmp_path: Path) -> None:
    """`setup("fit")` is no set-up of the test data, which a subclass may watch all the same."""

    class Both(ImageDataModule):
        def val_dataloader(self) -> list[Loader]:  # type: ignore[override]
            return [super().val_dataloader(), self.test_dataloader()]

    class Watching(Tracking):
        def validation_step(self, batch, batch_idx: int, dataloader_idx: int = 0) -> None:  # type: ignore[no-untyped-def]
            seen[dataloader_idx] += batch[1].tolist()

    seen: list[list[int]] = [[], []]
    sources = {name: numbered(tmp_path / name, count) for name, count in (("train", 4), ("val", 4), ("test", 3))}
    data = Both(batch_size=2, image_size=8, num_threads=1, **sources)  # type: ignore[arg-type]
    trainer(tmp_path, max_epochs=2, num_sanity_val_steps=0).fit(Watching(), data)
    assert seen == [[0, 1, 2, 3] * 2, [0, 1, 2] * 2]
    assert not data._loaders
