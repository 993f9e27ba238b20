"""Mix in a loop, as a collate function in workers, and with a model for saliency."""

import copy
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

import multimix as mm
from multimix.core.sampling import rank
from oracles import seeded
from salient import CLASSES, Network, Salient, images, labels

X = torch.randn(6, 3, 8, 10, generator=seeded(0))
Y = torch.arange(6)
HIDDEN = mm.ManifoldMixup(layers=("a",))
CLEAN_LOSS = Salient(clean_weight=1.0)
NEEDS_SALIENCY = TensorDataset(images(), labels())
IGNORE_FORK = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")


def test_one_call():
    x_mix, target = mm.Mix(mm.CutMix(k=5), num_classes=10)(X, Y)
    assert x_mix.shape == (30, 3, 8, 10)
    assert target.shape == (30, 10)
    torch.testing.assert_close(target.sum(1), torch.ones(30))


def test_same_as_plan_and_mix():
    mix = mm.Mix(mm.FMix(k=3), num_classes=6, smoothing=0.1, seed=4)
    state = mix.state_dict()
    x_mix, target = mix(X, Y)
    generator = torch.Generator()
    generator.set_state(state["generator"])
    plan = mm.FMix(k=3).plan(X, generator=generator)
    assert torch.equal(x_mix, plan.mix(X))
    assert torch.equal(target, plan.mix_target(Y, 6, 0.1))


def test_switched_off_is_really_off():
    mix = mm.Mix(mm.CutMix(k=5), num_classes=6)
    mix.enabled = False
    x, target = mix(X, Y)
    assert x is X
    assert torch.equal(target, torch.eye(6))
    mix.enabled = True
    assert len(mix(X, Y)[0]) == 30


def test_seed_and_state():
    first, again, other = (mm.Mix(mm.CutMix(), 6, seed=s) for s in (0, 0, 1))
    assert torch.equal(first(X, Y)[0], again(X, Y)[0])
    assert not torch.equal(first(X, Y)[0], other(X, Y)[0])
    state = copy.deepcopy(first.state_dict())
    expected = first(X, Y)[0]
    first.load_state_dict(state)
    assert torch.equal(first(X, Y)[0], expected)


def test_the_state_survives_torch_save_with_weights_only(tmp_path):
    mix = mm.Mix(mm.CutMix(), 6, seed=0)
    mix(X, Y)
    torch.save(mix.state_dict(), tmp_path / "mix.pt")
    expected = mix(X, Y)[0]
    fresh = mm.Mix(mm.CutMix(), 6, seed=0)
    fresh.load_state_dict(torch.load(tmp_path / "mix.pt", weights_only=True))
    assert torch.equal(fresh(X, Y)[0], expected)


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: mm.Mix(HIDDEN, 6), ValueError, "ManifoldMixup .*use mixed_forward"),
        (lambda: mm.Mix(mm.OneOf((mm.CutMix(), HIDDEN)), 6), ValueError, "use mixed_forward"),
        (lambda: mm.Mix(CLEAN_LOSS, 6), ValueError, "use mixed_forward"),
        (lambda: mm.Mix(mm.OneOf((mm.CutMix(), CLEAN_LOSS)), 6), ValueError, "use mixed_forward"),
        (lambda: mm.Mix(mm.SAGE(update_ratio=0.5), 6), ValueError, "use mixed_forward"),
        (lambda: mm.Mix("cutmix", 6), TypeError, "method must"),
        (lambda: mm.Mix(mm.CutMix(), 6, smoothing=2), ValueError, "smoothing must"),
        (lambda: mm.Mix(mm.CutMix())(X, Y), ValueError, "num_classes"),
        (lambda: mm.Mix(mm.CutMix(), 1)(X, Y), ValueError, "num_classes must"),
        (lambda: mm.Mix(mm.CutMix(), 6)(X, Y.float()), ValueError, r"y must .*y.long\(\)"),
        (lambda: mm.Mix(mm.CutMix(), 6, seed=1.5), ValueError, "seed must"),
        (lambda: mm.Mix(mm.CutMix(), 6).load_state_dict({}), ValueError, "state must"),
        (lambda: mm.Mix(mm.CutMix(), 6).collate([(X[0], 1, 2)]), ValueError, "collate needs"),
        (lambda: mm.Mix(mm.CutMix(), 6)([(X[0], 1)] * 4), TypeError, "mix.collate"),
    ],
)
def test_bad_use(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


COPIES = pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda mix: pickle.loads(pickle.dumps(mix))],
    ids=["deepcopy", "pickle"],
)


def loader(mix, method, persistent, start="fork"):
    data = TensorDataset(torch.arange(64.0).reshape(64, 1, 1, 1).expand(64, 1, 4, 4).clone(), torch.arange(64))
    return DataLoader(
        data,
        batch_size=8,
        num_workers=2,
        collate_fn=mix.collate,
        persistent_workers=persistent,
        multiprocessing_context=start,
    )


@pytest.mark.parametrize("start", ["fork", "spawn"])
@IGNORE_FORK
def test_the_switch_reaches_persistent_workers(start):
    mix = mm.Mix(mm.InputMixup(k=2, derange=True), num_classes=64, seed=0)
    batches = loader(mix, mix.method, persistent=True, start=start)
    assert all(float(target.max()) < 1 for _, target in batches)
    mix.enabled = False
    for x, target in batches:
        assert len(x) == 8
        assert (target.max(1).values == 1).all()
    mix.enabled = True
    assert all(len(x) == 16 for x, _ in batches)


@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.parametrize("start", ["fork", "spawn"])
@IGNORE_FORK
def test_workers_draw_differently(seed, start):
    mix = mm.Mix(mm.InputMixup(k=1, derange=True), num_classes=64, seed=seed)
    mix(torch.zeros(2, 1), torch.tensor([0, 1]))  # a stream of the main process must not go to the workers
    lams = [round(float(target.max()), 6) for _, target in loader(mix, mix.method, persistent=False, start=start)]
    assert len(set(lams)) == len(lams) == 8


@IGNORE_FORK
def test_a_seed_decides_what_workers_draw_epoch_by_epoch():
    def epochs(mix, n):
        torch.seed()  # the loader's own base seed must not matter
        return [[float(target.max()) for _, target in loader(mix, mix.method, persistent=False)] for _ in range(n)]

    first = mm.Mix(mm.InputMixup(derange=True), num_classes=64, seed=5)
    drawn = epochs(first, 3)
    assert len({lam for epoch in drawn for lam in epoch}) == 24, "epochs must differ"
    assert epochs(mm.Mix(mm.InputMixup(derange=True), num_classes=64, seed=5), 3) == drawn
    resumed = mm.Mix(mm.InputMixup(derange=True), num_classes=64, seed=5)
    epochs(resumed, 1)
    fresh = mm.Mix(mm.InputMixup(derange=True), num_classes=64, seed=5)
    fresh.load_state_dict(resumed.state_dict())
    assert epochs(fresh, 2) == drawn[1:]


@COPIES
@IGNORE_FORK
def test_a_copy_works_in_workers_too(copied):
    original = mm.Mix(mm.InputMixup(derange=True), num_classes=64, seed=3)
    twin = copied(original)
    epochs = [[float(target.max()) for _, target in loader(twin, twin.method, persistent=False)] for _ in range(2)]
    assert epochs[0] != epochs[1]
    batches = loader(twin, twin.method, persistent=True)
    assert all(float(target.max()) < 1 for _, target in batches)
    twin.enabled = False
    assert all(float(target.max()) == 1 for _, target in batches)
    assert original.enabled, "a copy has a switch of its own"


def test_spawned_workers_know_their_rank(monkeypatch):
    """A spawned worker has no process group: its rank travels with the object, or comes from torchrun."""
    mix = mm.Mix(mm.InputMixup(), 6, seed=0)
    monkeypatch.setenv("RANK", "3")
    assert rank() == 3
    travelled = pickle.dumps(mix)
    monkeypatch.delenv("RANK")
    assert rank() == 0
    assert not torch.equal(pickle.loads(travelled)(X, Y)[0], mm.Mix(mm.InputMixup(), 6, seed=0)(X, Y)[0])


def test_smoothing_applies_while_mixing_is_off():
    off = mm.Mix(mm.CutMix(), 6, smoothing=0.3, seed=0)
    off.enabled = False
    torch.testing.assert_close(off(X, Y)[1], mm.losses.soft_target(Y, 6, 0.3))
    again = mm.Mix(mm.CutMix(), 6, seed=0)
    again.load_state_dict(off.state_dict())
    assert not again.enabled


def test_a_rejected_label_leaves_the_stream():
    mix = mm.Mix(mm.CutMix(), 6, seed=0)
    before = mix.state_dict()["generator"]
    with pytest.raises(ValueError, match="class indices must"):
        mix(X, Y + 5)
    assert torch.equal(mix.state_dict()["generator"], before)


def test_mix_can_be_pickled():
    mix = mm.Mix(mm.CutMix(k=2), 6, seed=3)
    for _ in range(2):  # before and after its first draw
        twin = pickle.loads(pickle.dumps(mix))
        assert torch.equal(mix(X, Y)[0], twin(X, Y)[0])


def test_mix_is_a_module_that_owns_no_model_and_rests_in_evaluation_mode():
    model = torch.nn.Linear(240, 6)
    mix = mm.Mix(mm.CutMix(k=2), 6, model=model)
    around = torch.nn.ModuleDict({"mix": mix, "net": model})
    assert isinstance(mix, torch.nn.Module)
    assert len(list(mix.parameters())) == 0
    assert list(around.state_dict()) == ["net.weight", "net.bias"]
    around.load_state_dict(around.state_dict())
    around.to(torch.float64).eval()
    assert mix(X, Y)[0] is X
    around.train()
    assert len(mix(X, Y)[0]) == 12
    copy.deepcopy(around)


def test_bytes_are_mixed_and_rounded_where_asked_for():
    x = torch.randint(0, 256, (6, 3, 8, 10), generator=seeded(0), dtype=torch.uint8)
    x_mix, target = mm.Mix(mm.InputMixup(k=3), 6, seed=0, uint8=True)(x, Y)
    expected, same = mm.Mix(mm.InputMixup(k=3), 6, seed=0)(x.float(), Y)
    assert x_mix.dtype == torch.uint8
    assert torch.equal(x_mix, expected.round().to(torch.uint8))
    assert torch.equal(target, same)
    off = mm.Mix(mm.InputMixup(), 6, uint8=True)
    off.enabled = False
    assert torch.equal(off(x, Y)[0], x)
    assert mm.Mix(mm.InputMixup(), 6, uint8=True)(X, Y)[0].dtype == torch.float32
    with pytest.raises(ValueError, match="x must .*uint8=True"):
        mm.Mix(mm.InputMixup(), 6)(x, Y)
    with pytest.raises(ValueError, match="uint8"):
        mm.Mix(mm.PuzzleMix(), 6, uint8=True, model=torch.nn.Linear(240, 6))


@pytest.mark.parametrize("method", [mm.CutMix(k=2), mm.InputMixup(k=2)])
def test_index_maps_of_a_segmentation_are_mixed_as_the_images_are(method):
    maps = torch.randint(0, 5, (6, 8, 10), generator=seeded(1))
    target = mm.Mix(method, 5, seed=0)(X, maps)[1]
    one_hot = torch.nn.functional.one_hot(maps, 5).movedim(-1, 1).float()
    assert torch.equal(target, mm.Mix(method, seed=0)(X, one_hot)[1])
    assert target.shape == (12, 5, 8, 10)
    torch.testing.assert_close(target.sum(1), torch.ones(12, 8, 10))


def test_a_model_serves_methods_with_needs():
    model = Network(dropout=0)
    saliency = mm.input_saliency(model, images(), labels())
    model.seen.clear()
    mix = mm.Mix(Salient(k=3), CLASSES, model=model, smoothing=0.2, seed=4)
    given = mm.Mix(Salient(k=3), CLASSES, smoothing=0.2, seed=4)
    generator = torch.Generator()
    generator.set_state(mix.state_dict()["generator"])
    assert mix.state_dict().keys() == {"enabled", "generator", "starts"}
    plan = Salient(k=3).plan(images(), saliency=saliency, generator=generator)
    for x_mix, target in (mix(images(), labels()), given(images(), labels(), saliency=saliency)):
        assert torch.equal(x_mix, plan.mix(images()))
        assert torch.equal(target, plan.mix_target(labels(), CLASSES, 0.2))
        assert not x_mix.requires_grad, "nothing leads from the batch back into the model"
    assert model.seen == [(6, False)]
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    mix(images(), labels(), saliency=saliency)
    mix.enabled = False
    mix(images(), labels())
    assert model.seen == [(6, False)], "the model does not run for a given map, or without mixing"


def test_the_output_of_a_model_can_be_named():
    class Wordy(Network):
        def forward(self, x):
            return x, super().forward(x)

    mixed = mm.Mix(Salient(), CLASSES, model=Wordy(), output=1, seed=0)(images(), labels())[0]
    assert torch.equal(mixed, mm.Mix(Salient(), CLASSES, model=Network(), seed=0)(images(), labels())[0])


def test_only_a_method_that_was_drawn_asks_the_model():
    model = Network()
    mix = mm.Mix(mm.OneOf((mm.InputMixup(k=1), Salient(k=2)), (0.4, 0.4)), CLASSES, model=model, seed=0)
    rows = [len(mix(images(), labels())[0]) for _ in range(20)]
    assert len(model.seen) == rows.count(12)
    assert 0 < rows.count(12) < 20


@pytest.mark.parametrize("method", [Salient(), mm.OneOf((mm.CutMix(), Salient()), (0.99, 0.01))], ids=["alone", "one of"])
@COPIES
def test_needs_without_a_model_raise_before_any_draw(method, copied):
    mix = mm.Mix(method, CLASSES, model=Network(), seed=0)
    twin = copied(mix)
    assert mix.model is not None
    assert b"Network" not in pickle.dumps(mix)
    for bare in (twin, mm.Mix(method, CLASSES, seed=0)):
        before = bare.state_dict()["generator"]
        with pytest.raises(ValueError, match="needs saliency.* model="):
            bare(images(), labels())
        assert torch.equal(bare.state_dict()["generator"], before)
        assert len(bare(images(), labels(), saliency=torch.ones(6, 5, 7))[0]) == 6


def test_unknown_keywords_raise():
    with pytest.raises(TypeError, match="CutMix.plan takes no 'saliency'"):
        mm.Mix(mm.CutMix(), CLASSES)(images(), labels(), saliency=torch.ones(6, 5, 7))


@pytest.mark.parametrize("start", ["fork", "spawn"])
@IGNORE_FORK
def test_a_model_is_not_used_in_workers(start):
    mix = mm.Mix(Salient(), CLASSES, model=Network())
    batches = DataLoader(NEEDS_SALIENCY, 6, num_workers=1, collate_fn=mix.collate, multiprocessing_context=start)
    with pytest.raises(ValueError, match="Salient needs saliency.* data-loader worker"):
        next(iter(batches))


@IGNORE_FORK
def test_maps_can_be_passed_in_workers():
    mix = mm.Mix(Salient(k=2), CLASSES, model=Network(), seed=0)

    def collate(samples):
        x, y = default_collate(samples)
        return mix(x, y, saliency=x.abs().mean(1))

    (batch,) = DataLoader(NEEDS_SALIENCY, 6, num_workers=1, collate_fn=collate, multiprocessing_context="fork")
    assert len(batch[0]) == 12
