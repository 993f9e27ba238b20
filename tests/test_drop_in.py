"""Mix in a loop, and as a collate function in workers."""

import copy
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import multimix as mm
from multimix.sampling import rank
from oracles import seeded

X = torch.randn(6, 3, 8, 10, generator=seeded(0))
Y = torch.arange(6)


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
        (lambda: mm.Mix(mm.ManifoldMixup(layers=("a",)), 6), ValueError, "ManifoldMixup mixes hidden layers: use mixed_logits"),
        (lambda: mm.Mix(mm.OneOf((mm.CutMix(), mm.ManifoldMixup(layers=("a",)))), 6), ValueError, "use mixed_logits"),
        (lambda: mm.Mix("cutmix", 6), TypeError, r"a mixing method such as CutMix\(k=5\), got 'cutmix'"),
        (lambda: mm.Mix(mm.CutMix(), 6, smoothing=2), ValueError, "smoothing must lie in 0 … 1, got 2"),
        (lambda: mm.Mix(mm.CutMix())(X, Y), ValueError, "class indices need num_classes"),
        (lambda: mm.Mix(mm.CutMix(), 6, seed=1.5), ValueError, "seed must be a whole number, got 1.5"),
        (
            lambda: mm.Mix(mm.CutMix(), 6).load_state_dict({}),
            ValueError,
            "state must hold enabled, generator, starts, got nothing",
        ),
        (lambda: mm.Mix(mm.CutMix(), 6).collate([(X[0], 1, 2)]), ValueError, r"collate needs samples that are \(x, y\) pairs"),
    ],
)
def test_bad_use(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


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
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
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
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_workers_draw_differently(seed, start):
    mix = mm.Mix(mm.InputMixup(k=1, derange=True), num_classes=64, seed=seed)
    mix(torch.zeros(2, 1), torch.tensor([0, 1]))  # a stream of the main process must not go to the workers
    lams = [round(float(target.max()), 6) for _, target in loader(mix, mix.method, persistent=False, start=start)]
    assert len(set(lams)) == len(lams) == 8


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
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


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda mix: pickle.loads(pickle.dumps(mix))], ids=["deepcopy", "pickle"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
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


def test_options_of_mix_are_obeyed():
    bad = X.clone()
    bad[0, 0, 0, 0] = torch.nan
    assert mm.Mix(mm.InputMixup(), 6, check=False)(bad, Y)[0].isnan().any()
    off = mm.Mix(mm.CutMix(), 6, smoothing=0.3, seed=0)
    off.enabled = False
    torch.testing.assert_close(off(X, Y)[1], mm.soft_target(Y, 6, 0.3))
    again = mm.Mix(mm.CutMix(), 6, seed=0)
    again.load_state_dict(off.state_dict())
    assert not again.enabled


def test_a_refused_label_moves_nothing():
    mix = mm.Mix(mm.CutMix(), 6, seed=0)
    before = mix.state_dict()["generator"]
    with pytest.raises(ValueError, match="class indices must lie in"):
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
    with pytest.raises(ValueError, match=r"x must be floating point .* got torch.uint8: .* Mix\(…, uint8=True\)"):
        mm.Mix(mm.InputMixup(), 6)(x, Y)
    with pytest.raises(ValueError, match="uint8 mixes images as they are stored"):
        mm.Mix(mm.PuzzleMix(), 6, uint8=True, model=torch.nn.Linear(240, 6))


@pytest.mark.parametrize("method", [mm.CutMix(k=2), mm.InputMixup(k=2)])
def test_index_maps_of_a_segmentation_are_mixed_as_the_images_are(method):
    maps = torch.randint(0, 5, (6, 8, 10), generator=seeded(1))
    target = mm.Mix(method, 5, seed=0)(X, maps)[1]
    one_hot = torch.nn.functional.one_hot(maps, 5).movedim(-1, 1).float()
    assert torch.equal(target, mm.Mix(method, seed=0)(X, one_hot)[1])
    assert target.shape == (12, 5, 8, 10)
    torch.testing.assert_close(target.sum(1), torch.ones(12, 8, 10))
