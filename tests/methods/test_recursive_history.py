"""What RecursiveMix hands on from batch to batch, in loops and in trainings that are stopped. Chance below 1e-3."""

from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from scipy import stats
from torch.nn.functional import one_hot

import multimix as mm
from batches import history_after
from multimix.core.plan import UnmixedPlan
from multimix.core.sampling import seeded as keyed
from multimix.lab.recipes.settings import Network as Named
from multimix.lab.training.checkpoint import Checkpoint, read_checkpoint, weights_digest, write_checkpoint
from multimix.lab.training.loop import Training
from multimix.lab.training.step import MIXING
from multimix.methods.recursive_mix import RecursiveMix
from oracles import seeded
from recursive_cases import CLASSES, LINKED, Network, images, labels, past
from trial import settings, splits


@pytest.mark.parametrize("area", [0.5, 0.9])
def test_old_samples_fade_and_labels_keep_their_mass(area):
    """Images of step t are 1 in channel t: how much a mixed image holds of each step is read off."""
    steps = 8
    history, oldest = {}, 0.0
    method = RecursiveMix(k=3, area=area, keep="random", resize="bilinear")
    for t in range(steps):
        x = torch.zeros(5, steps, 12, 9)
        x[:, t] = 1
        plan = method.plan(x, generator=seeded(t), **history)
        target = plan.mix_target(torch.full((5,), t), steps)
        mixed = plan.mix(x)
        torch.testing.assert_close(target.sum(1), torch.ones(len(target)))
        assert (target >= 0).all()
        for age in range(t + 1):
            assert float(target[:, t - age].max()) <= area**age + 1e-6
        oldest = max(oldest, float(target[:, max(0, t - 3)].max()) if t >= 3 else 0.0)
        if t == 1:  # a constant image stays what it is when it is resized, so the pixels have the target's shares
            torch.testing.assert_close(mixed.mean((2, 3)), target, atol=1e-6, rtol=0)
        history = history_after(plan, x, target, target)
    assert oldest > 0, "a batch is still there three steps later"


def test_the_first_batch_is_not_mixed():
    x, y = images(5, 2, 9, 7), labels(5)
    method = RecursiveMix(k=5, **LINKED)
    plan = method.plan(x, generator=seeded(0))
    assert isinstance(plan, UnmixedPlan)
    out = mm.mixed_forward(Network(dtype=torch.float32), method, x, y, generator=seeded(0), state=None)
    assert torch.equal(out.loss(), mm.losses.soft_cross_entropy(Network(dtype=torch.float32)(x), one_hot(y, CLASSES).float()))
    assert torch.equal(out.state["history_x"], x)
    assert out.state["history_x"].data_ptr() != x.data_ptr(), "a loader may fill its memory again"
    assert torch.equal(out.state["history_target"], one_hot(y, CLASSES).float())
    assert torch.equal(out.state["history_logits"], out.logits)


@pytest.mark.parametrize("keep", ["first", "middle", "last", "random"])
@pytest.mark.parametrize(("k", "middle", "steps"), [(1, 0, 1), (2, 0, None), (3, 1, 2), (4, 1, 1), (5, 2, 2), (5, 2, None)])
def test_one_step_is_handed_on_whatever_the_parts(keep, k, middle, steps):
    x, y, history = images(4, 2, 9, 9), labels(4), past(4, 2, 9, 9)
    method, model = RecursiveMix(k=k, keep=keep, **LINKED), Network(dtype=torch.float32)
    plan = method.plan(x, generator=seeded(1), **history)
    assert plan.kept.sum() == 1
    step = int(plan.kept.nonzero())
    if keep != "random":
        assert step == {"first": 0, "middle": middle, "last": k - 1}[keep]
    parts = list(mm.mixed_parts(model, method, x, y, steps=steps, generator=seeded(1), state=history))
    known = [len(part.state) > 0 for part in parts]
    assert known == [(steps or k) * (i + 1) > step for i in range(len(parts))], (
        "from the part on that makes the step, to the last"
    )
    state = parts[-1].state
    assert tuple(state) == method.traits.history
    assert torch.equal(state["history_x"], plan[step].mix(x))
    assert torch.equal(state["history_target"], plan[step].mix_target(y, CLASSES))
    torch.testing.assert_close(state["history_logits"], model(plan[step].mix(x)).detach())
    assert not any(value.requires_grad for value in state.values())


def test_a_random_step_is_drawn_evenly_and_last():
    x, history = images(1, 1, 2, 2), past(1, 1, 2, 2)
    generator = seeded(11)
    kept = [int(RecursiveMix(k=3, keep="random").plan(x, generator=generator, **history).kept.nonzero()) for _ in range(3000)]
    assert stats.chisquare(torch.bincount(torch.tensor(kept)).numpy()).pvalue > 1e-3
    boxes = [RecursiveMix(k=3, keep=keep).plan(x, generator=seeded(1), **history).high for keep in ("random", "last")]
    assert torch.equal(*boxes)


def test_the_history_has_the_published_law_whatever_k():
    """Areas of the step that is kept: uniform on 0 … ½ as at K = 1; those of the middle step are not."""
    x, history = images(1, 1, 40, 40), past(1, 1, 40, 40)
    areas = {}
    for keep in ("random", "middle"):
        method, found = RecursiveMix(k=5, keep=keep, box="shift", grid="continuous"), []
        assert keep != "random" or RecursiveMix(k=5).keep == keep
        for seed in range(600):
            plan = method.plan(x, generator=seeded(seed), **history)
            found.append(float(plan.lam[plan.history_steps[0], 0]))
        areas[keep] = found
    # Boxes have whole pixels: their areas differ from those drawn by up to a pixel a side.
    law = stats.uniform(0, 0.5)
    assert stats.kstest(areas["random"], law.cdf).statistic < stats.kstwobign.isf(1e-3) / 600**0.5 + 0.03
    assert torch.tensor(areas["random"]).std() == pytest.approx(law.std(), rel=0.1)
    assert torch.tensor(areas["middle"]).std() < 0.75 * law.std()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_history_is_kept_in_full_precision(dtype):
    x, history = images(3, 2, 8, 8).to(dtype), past(3, 2, 8, 8)
    method = RecursiveMix(k=2)
    plan = method.plan(x, generator=seeded(1), **history)
    mixed = plan.mix(x)
    assert mixed.dtype == dtype
    exact = plan.mix(x.double()).to(dtype)
    assert torch.equal(mixed, exact)
    target = plan.mix_target(labels(3), CLASSES)
    history = history_after(plan, x, target, target.to(dtype))
    wanted = torch.float64 if dtype == torch.float64 else torch.float32
    assert [history["history_x"].dtype, history["history_logits"].dtype] == [wanted, wanted]


def test_no_gradient_flows_into_the_history():
    x, y, history = images(3, 2, 8, 8).requires_grad_(), labels(3), past(3, 2, 8, 8)
    history = {name: value.requires_grad_() for name, value in history.items()}
    plan = RecursiveMix(k=2).plan(x, generator=seeded(2), **history)
    plan.mix(x).sum().backward()
    torch.testing.assert_close(x.grad, (1 - plan.mask).sum(0).expand(-1, 2, -1, -1))
    given = {"generator": seeded(2), "state": history}
    mm.mixed_forward(Network(dtype=torch.float32), RecursiveMix(k=2, **LINKED), x, y, **given).loss().backward()
    assert all(value.grad is None for value in history.values())
    out = mm.mixed_forward(Network(dtype=torch.float32), RecursiveMix(), x, y, **given)
    assert not any(value.requires_grad for value in out.state.values())


def test_a_loop_as_on_the_card_with_odd_batches():
    """Batches of 6, 2, 5 and 1: as many rows are mixed as both have; all losses are finite, all labels have mass 1."""
    model, method = Network(dtype=torch.float32), RecursiveMix(k=2, sampler="grid", **LINKED)
    state, mixed = None, []
    for t, batch in enumerate([6, 2, 5, 1]):
        x, y = images(batch, 2, 15, 14, seed=t), labels(batch, seed=t)
        out = mm.mixed_forward(model, method, x, y, generator=seeded(t), state=state)
        mixed.append(int((out.plan.lam[-1] > 0).sum()))
        loss = out.loss()
        loss.backward()
        state = out.state
        assert torch.isfinite(loss)
        assert len(state["history_x"]) == batch
        torch.testing.assert_close(out.target.sum(1), torch.ones(len(out.target)))
    assert mixed == [0, 2, 2, 1]


def test_a_batch_that_a_coin_leaves_unmixed_is_the_next_history():
    x, y, history = images(4, 2, 9, 9), labels(4), past(4, 2, 9, 9)
    method = RecursiveMix(k=3, p=0.0, **LINKED)
    out = mm.mixed_forward(Network(dtype=torch.float32), method, x, y, generator=seeded(1), state=history)
    assert torch.equal(out.state["history_x"], x)


def test_mix_takes_its_last_output_as_history():
    mix = mm.Mix(RecursiveMix(), CLASSES, seed=1)
    x, y = images(4, 2, 9, 9), labels(4)
    with pytest.raises(ValueError, match="RecursiveMix.*history_x"):
        mix(x, y)
    first, target = mix(x, y, history_x=None)
    assert torch.equal(first, x)
    second, target_2 = mix(x.flip(0), y.flip(0), history_x=first, history_target=target)
    assert second.shape == x.shape
    assert not torch.equal(second, x.flip(0))
    torch.testing.assert_close(target_2.sum(1), torch.ones(4))


class Writing:
    """A watcher that writes every state to a file and keeps the losses."""

    def __init__(self, folder):
        self.folder, self.files, self.losses = folder, {}, []

    def step(self, row, images):
        self.losses.append(row.loss)

    def epoch(self, history):
        pass

    def doing(self, what):
        pass

    def due(self, updates):
        return True

    def between(self, updates, state, due):
        self.files[updates] = write_checkpoint(self.folder / str(updates), updates, state())


def trained(chosen, folder, checkpoint=None):
    training, watcher = Training(chosen, 0, splits(), Accelerator(cpu=True)), Writing(folder)
    if checkpoint is not None:
        training.resume(checkpoint)
    training.run(watcher)
    return weights_digest(training.network), watcher


def test_a_training_goes_on_from_any_update_with_the_same_bits(tmp_path):
    method = RecursiveMix(k=3, keep="random", resize="bilinear", features="stage2", head="head", omega=0.5)
    network = Named("recursive_oracle:PooledNet")
    chosen = settings(network=network, method=method, accumulate=2, k_chunk=2, epochs=2)
    digest, watcher = trained(chosen, tmp_path / "whole")
    assert len(watcher.losses) == 10
    for updates, file in watcher.files.items():
        checkpoint = read_checkpoint(file)
        assert ("method_states" in checkpoint.values) == (updates % 5 > 0), "an epoch begins without a history"
        if updates in (1, 3, 5, 8):
            again, rest = trained(chosen, tmp_path / f"from {updates}", checkpoint)
            assert (again, rest.losses) == (digest, watcher.losses[updates:])
    checkpoint = read_checkpoint(watcher.files[3])
    names = {name for name in checkpoint.tensors if name.startswith("method_states/")}
    assert len(names) == 2 * 3, "of two shares"
    kept = {name: value for name, value in checkpoint.tensors.items() if name not in names}
    bare = Checkpoint(kept, {name: value for name, value in checkpoint.values.items() if name != "method_states"})
    forgetful, rest = trained(chosen, tmp_path / "forgetful", bare)
    assert rest.losses[0] != watcher.losses[3]
    assert forgetful != digest


def test_the_history_of_training_is_that_of_a_plain_loop(tmp_path):
    """Of every share its own, from update to update; nothing of it where a method remembers nothing."""
    chosen = settings(
        network=Named("recursive_oracle:PooledNet"), method=RecursiveMix(k=3, keep="middle"), accumulate=2, epochs=1
    )
    _, watcher = trained(chosen, tmp_path / "recursive")
    training = Training(chosen, 0, splits(), Accelerator(cpu=True))
    streams = [loader.epoch(0, 0) for loader in training.loaders(0)]
    past = [{}, {}]
    for updates, shares in enumerate(zip(*streams, strict=True), 1):
        for i, (x, y) in enumerate(shares):
            plan = chosen.method.plan(x, generator=keyed(MIXING, 0, 0, updates - 1, i), **past[i])
            rows = slice(len(x), 2 * len(x)) if plan.k == 3 else slice(None)
            past[i] = {"history_x": plan.mix(x)[rows], "history_target": plan.mix_target(y, 10)[rows]}
            if updates < 5:
                found = read_checkpoint(watcher.files[updates]).tensors
                for name, value in past[i].items():
                    assert torch.equal(found[f"method_states/shares/{i}/{name}"], value)
    _, plain = trained(replace(chosen, method=mm.CutMix(k=3)), tmp_path / "cutmix")
    assert read_checkpoint(plain.files[3]).values.keys() == {
        "network",
        "optimizer",
        "seed",
        "settings",
        "samples",
        "pixels",
        "at",
    }
