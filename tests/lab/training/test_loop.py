"""A whole training: resumed at every update with the same bits, phases, shares, divergence, what an epoch reports."""

import json
import math
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator

import multimix as mm
from multimix.lab.data import Loader, Splits
from multimix.lab.recipes.settings import Augmentation, Data, Knots, Milestones, Network, Phase
from multimix.lab.training.checkpoint import Checkpoint, weights_digest
from multimix.lab.training.loop import Diverged, Training
from multimix.methods.samix.block import NewBlock
from multimix.methods.style.small_pair import NewPair
from trial import MEAN, PUZZLE, STD, settings, splits, weights

DATA = splits()


class Watching:
    """Keeps everything it is told, and a copy of every state."""

    def __init__(self):
        self.rows, self.histories, self.states, self.images = [], [], {}, 0

    def step(self, row, images):
        self.rows.append(row)
        self.images += images

    def epoch(self, history):
        self.histories.append(list(history))

    def doing(self, what):
        pass

    def due(self, updates):
        return True

    def between(self, updates, state, due):
        assert due
        tensors, values = state()
        # Through JSON, as a file would bring it back.
        self.states[updates] = Checkpoint(
            {name: value.clone() for name, value in tensors.items()}, json.loads(json.dumps(values))
        )


def training(chosen, seed=0):
    return Training(chosen, seed, DATA, Accelerator(cpu=True))


def trained(chosen, seed=0):
    done, watcher = training(chosen, seed), Watching()
    done.run(watcher)
    return done, watcher


LEARNS = mm.methods.SAMix(k=2, p=0.8, block=NewBlock("stage1", momentum=0.8))
STYLES = mm.methods.StyleMix(k=2, pair=NewPair(steps=20), side=None, mean=MEAN, std=STD)
CASES = {
    "samix, shares and chunks": settings(method=LEARNS, accumulate=2, k_chunk=1),
    "stylemix": settings(method=STYLES),
    "puzzlemix": settings(),
    "manifoldmix, chunks": settings(method=mm.ManifoldMixup(k=4, layers=(None, "stage1")), k_chunk=3),
    "one of several, shares": settings(method=mm.OneOf((mm.CutMix(k=2), mm.FMix(k=3)), (0.5, 0.3)), accumulate=2),
    "batch augmentation": settings(method=mm.InputMixup(), repeats=3),
    "clean loss": settings(method=replace(PUZZLE, clean_weight=1.0, adv_p=0.5), loss="softmax_bce"),
    "phases": settings(
        method=mm.CutMix(k=2),
        augment=Augmentation(flip=True, smallest_crop=0.5, size=8),
        phases=(Phase(0, 40, 8, 0.5), Phase(1, 25, 8, 0.7)),
        schedule=Knots(((0, 0.1), (1, 0.05), (1, 0.2), (3, 0.0))),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_resumed_after_any_update_it_ends_with_the_same_bits(name):
    whole, watcher = trained(CASES[name])
    assert len(watcher.states) == whole.total_updates == whole.at.updates
    digest = weights_digest(whole.network)
    for state in watcher.states.values():
        torch.manual_seed(1234)  # whatever happened in the process before
        again = training(CASES[name])
        again.resume(state)
        again.run(None)
        assert weights_digest(again.network) == digest
        assert weights_digest(again.fitted.method.modules) == weights_digest(whole.fitted.method.modules)
        for ours, theirs in zip(again.at.history, whole.at.history, strict=True):
            assert replace(ours, seconds=0, cpu_seconds=0) == replace(theirs, seconds=0, cpu_seconds=0)
    assert weights_digest(trained(CASES[name], seed=1)[0].network) != digest


def test_an_epoch_reports_the_means_of_its_updates():
    chosen = settings(method=mm.CutMix(k=3, p=0.5), evaluate_every=2)
    done, watcher = trained(chosen)
    assert [row.update for row in watcher.rows] == list(range(1, 16))
    assert [row.epoch for row in watcher.rows] == [1] * 5 + [2] * 5 + [3] * 5
    for epoch in done.at.history:
        rows = [row for row in watcher.rows if row.epoch == epoch.number]
        for name in ("loss", "accuracy", "squared_grad_norm"):
            assert getattr(epoch, name) == pytest.approx(sum(getattr(row, name) for row in rows) / 5)
        assert (epoch.images, epoch.updates, epoch.rate) == (200, 5 * epoch.number, rows[-1].rate)
        assert epoch.rows % 40 == 0
        assert 200 <= epoch.rows <= 600
        assert epoch.seconds > 0
    assert len({epoch.rows for epoch in done.at.history}) > 1, "some batches stay unmixed"
    assert [epoch.error is None for epoch in done.at.history] == [True, False, False], "every second, and the last"
    assert watcher.images == 600
    assert [len(history) for history in watcher.histories] == [1, 2, 3]


def test_the_rate_follows_the_schedule_within_an_epoch():
    rows = trained(settings(method=mm.NoMix(), schedule=Milestones(0.1, (2.0,), warmup=0.5)))[1].rows
    expected = [0.1 * min(1.0, (i / 5) / 0.5) * (0.1 if i >= 10 else 1.0) for i in range(15)]
    assert [row.rate for row in rows] == pytest.approx(expected)


def test_phases_have_batches_sizes_and_updates_of_their_own():
    done = training(CASES["phases"])
    assert [done.updates_in(epoch) for epoch in range(3)] == [5, 8, 8]
    assert done.total_updates == 21
    assert [done.loaders(epoch)[0].batch for epoch in range(2)] == [40, 25]
    assert [done.loaders(epoch)[0].augment.steps[0].scale for epoch in range(2)] == [(0.5, 1.0), (0.7, 1.0)]


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        (settings(batch=201), "a batch of 201 is more than the 200 training samples; give --batch 200 or less"),
        (
            replace(CASES["phases"], phases=(Phase(0, 40, 8, 0.5), Phase(1, 300, 8, 0.7))),
            "a batch of 300 .*; give --phases.1.batch 200",
        ),
    ],
)
def test_more_in_a_batch_than_there_is_names_the_option(chosen, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        training(chosen)


def test_shares_are_the_batch_cut_in_order():
    whole, parts = training(settings()).loaders(0), training(settings(accumulate=4)).loaders(0)
    assert (len(whole), len(parts)) == (1, 4)
    for (x, y), *shares in zip(*(loader.epoch(0) for loader in (*whole, *parts)), strict=True):
        assert torch.equal(torch.cat([share for share, _ in shares]), x)
        assert torch.equal(torch.cat([labels for _, labels in shares]), y)
    with pytest.raises(ValueError, match="batch must be a multiple of processes × accumulate, which is 7, got 40"):
        training(settings(accumulate=7)).loaders(0)


def test_without_mixing_and_statistics_shares_change_nothing():
    chosen = settings(network=Network("trial:PlainNet"), method=mm.NoMix(), smoothing=0.1)
    whole, parts = trained(chosen)[0], trained(replace(chosen, accumulate=4))[0]
    torch.testing.assert_close(weights(parts.network), weights(whole.network), rtol=1e-5, atol=1e-6)


def test_the_start_depends_on_the_seed_alone():
    starts = [
        weights_digest(training(settings(method=method), seed).network) for seed in (0, 1) for method in (PUZZLE, mm.NoMix())
    ]
    assert starts[0] == starts[1] != starts[2] == starts[3]


def test_a_loss_that_is_no_number_stops_the_run_with_its_update():
    chosen = settings(method=mm.NoMix(), schedule=Milestones(0.1), network=Network("trial:DropNet"))
    done, watcher = training(chosen), Watching()
    broken = done.network.head[2]

    def breaking(module, arguments):
        if done.at.updates == 7:
            with torch.no_grad():
                broken.weight.fill_(math.inf)

    done.network.head.register_forward_pre_hook(breaking)
    with pytest.raises(Diverged, match=r"the loss became (nan|inf) in epoch 2, update 8 .*--schedule.rate.*--schedule.warmup"):
        done.run(watcher)
    assert max(watcher.states) == 7, "nothing is written after it"


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_weights_that_the_last_update_breaks_stop_the_run(value):
    done, watcher = training(settings(method=mm.NoMix())), Watching()
    step = done.optimizer.step

    def breaking():
        step()
        if done.at.updates == done.total_updates - 1:
            with torch.no_grad():
                done.network.head[2].weight[3, 5] = value

    done.optimizer.step = breaking
    with pytest.raises(
        Diverged, match=r"^the weights head.2.weight became infinite or NaN in epoch 3, update 15 .*schedule.rate"
    ):
        done.run(watcher)
    assert max(watcher.states) == 14, "nothing is written after it"
    assert len(watcher.histories) == 2, "no error of it is logged"


def test_one_sample_without_an_answer_is_no_divergence():
    parts = dict(DATA.parts)
    pixels = parts["test"].pixels.float()
    pixels[0] = math.nan
    parts["test"] = replace(parts["test"], pixels=pixels)
    chosen = settings(method=mm.NoMix(), data=Data("digits", per_class=20), epochs=1)
    done = Training(chosen, 0, Splits("digits", parts), Accelerator(cpu=True))
    done.run(None)
    assert done.at.history[-1].error < 100
    assert done.at.history[-1].nll is None


@pytest.mark.parametrize(
    "method", [PUZZLE, replace(PUZZLE, clean_weight=1.0), mm.CutMix(k=2), mm.ManifoldMixup(layers=("stage1",))]
)
def test_weights_that_blew_up_are_divergence_for_every_method(method):
    """Saliency is asked of the model before there is a loss: its NaN must not come out as an error of its own."""
    done = training(settings(method=method, schedule=Milestones(1e25)))
    with pytest.raises(Diverged, match=r"became (nan|inf) in epoch 1, update \d+ .*--schedule.rate"):
        done.run(Watching())


def test_advice_fits_the_schedule():
    done = training(replace(CASES["phases"], schedule=Knots(((0, 1e25),))))
    with pytest.raises(Diverged, match="--schedule.points"):
        done.run(None)


def test_momentum_keeps_its_memory_order():
    state = trained(settings(epochs=1))[1].states[3]
    again = training(settings(epochs=1))
    again.resume(state)
    orders = [
        buffer["momentum_buffer"].is_contiguous(memory_format=torch.channels_last)
        for weight, buffer in again.optimizer.state.items()
        if weight.ndim == 4 and weight.shape[1] > 1
    ]
    assert orders
    assert all(orders)


def test_other_samples_than_the_run_was_begun_with_are_refused():
    state = trained(settings(epochs=1))[1].states[3]
    fewer = DATA["train"].subset(25, 0)
    other = Training(settings(epochs=1), 0, Splits("digits", {"train": fewer, "test": DATA["test"]}), Accelerator(cpu=True))
    with pytest.raises(ValueError, match="begun with other samples"):
        other.resume(state)


def test_other_pixels_to_select_by_are_refused():
    parts = {**DATA.parts, "validation": DATA["test"].subset(5, 3)}
    chosen = settings(epochs=1, data=Data("digits", per_class=20, report_per_class=5, select="validation"))
    begun = Training(chosen, 0, Splits("digits", parts), Accelerator(cpu=True))
    same = Training(chosen, 0, Splits("digits", parts), Accelerator(cpu=True))
    same.resume(begun.state())
    parts["validation"] = replace(parts["validation"], pixels=parts["validation"].pixels + 1)
    other = Training(chosen, 0, Splits("digits", parts), Accelerator(cpu=True))
    with pytest.raises(ValueError, match="begun with other pixels"):
        other.resume(begun.state())


def test_a_checkpoint_of_another_training_is_refused():
    state = trained(settings(epochs=1))[1].states[5]
    for other in (training(settings(epochs=1), seed=1), training(settings(epochs=2))):
        with pytest.raises(ValueError, match="belongs to another training"):
            other.resume(state)


def test_parts_and_subsets_are_those_of_the_settings():
    done = training(settings(data=Data("digits", per_class=3, report_per_class=2, subset_seed=5), batch=30))
    expected = DATA["train"].subset(3, 5)
    assert torch.equal(done.train.pixels, expected.pixels)
    assert len(done.report) == 20
    assert done.select is None
    x, _ = next(Loader(done.train, settings().augment.training(done.data), batch=30).epoch(0))
    assert x.shape == (30, 1, 8, 8)


@pytest.mark.parametrize(("precision", "native"), [("no", False), ("bf16", True), ("bf16", False)])
def test_channels_last_and_precision_train(precision, native, monkeypatch):
    from accelerate.state import AcceleratorState

    monkeypatch.setattr("multimix.lab.training.bfloat16.is_native", lambda: native)
    AcceleratorState._reset_state()
    try:
        chosen = settings(channels_last=precision == "no", mixed_precision=precision, epochs=6)
        done = Training(chosen, 0, DATA, Accelerator(cpu=True, mixed_precision=precision))
        seen = []
        done.network.stage1[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
        done.run(None)
    finally:
        AcceleratorState._reset_state()
    assert ("_conv_forward" in vars(done.network.stage2[0])) == (precision == "bf16" and not native)
    assert set(seen) == {torch.float32 if precision == "no" else torch.bfloat16}
    assert done.at.history[-1].error < 60, "chance is 90 %"
    assert done.network.stage2[0].weight.is_contiguous(memory_format=torch.channels_last) == (precision == "no")
