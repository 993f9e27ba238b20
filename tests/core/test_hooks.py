"""Hidden layers by name: mixed correctly or rejected; hooks are always removed."""

import copy
import gc
import io
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import multimix as mm
from multimix.core.hooks import unwrapped
from oracles import seeded


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, z):
        return z + torch.relu(self.inner(z))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.block, self.twice, self.unused = (
            nn.Linear(5, 6),
            Block(),
            nn.Linear(6, 6),
            nn.Linear(2, 2),
        )
        self.pair, self.head = Pair(), nn.Linear(6, 3)

    def forward(self, x):
        z = self.block(self.stem(x))
        z, _ = self.pair(self.twice(self.twice(z)))
        return self.head(z)


class Pair(nn.Module):
    """Returns a tuple, as many transformer blocks do."""

    def forward(self, z):
        return z, None


def hooks(model):
    return sum(len(module._forward_hooks) for module in model.modules())


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


X = torch.randn(4, 5, generator=seeded(0))
Y = torch.tensor([0, 1, 2, 0])


def test_a_layer_that_returns_a_tuple(net):
    plan = mm.ManifoldMixup(k=3, layers=("pair",)).plan(X, generator=seeded(1))
    hidden = net.twice(net.twice(net.block(net.stem(X))))
    torch.testing.assert_close(mm.plans.run_plan(net, plan, X), net.head(plan.mix(hidden)))


@pytest.mark.parametrize(
    ("layer", "k", "error", "sentence"),
    [
        ("twice", 2, mm.MixingError, "layer 'twice'"),
        ("twice", 1, mm.MixingError, "layer 'twice'"),
        ("unused", 2, mm.MixingError, "layer 'unused'"),
        ("layer9", 2, ValueError, "no layer 'layer9'.* stem, block, block.inner"),
        ("block.inner", 2, mm.MixingError, "layer 'block.inner'"),
    ],
)
def test_layers_that_cannot_be_mixed_raise_and_leave_no_hooks(net, layer, k, error, sentence):
    before = net(X)
    with pytest.raises(error, match=sentence) as raised:
        mm.mixed_forward(net, mm.ManifoldMixup(k=k, layers=(layer,)), X, Y)
    assert "\n" not in str(raised.value).split("(")[0]
    assert hooks(net) == 0
    torch.testing.assert_close(net(X), before)


class Odd(nn.Module):
    def forward(self, z):
        return {"z": z}


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        (Odd(), "layer '0'.* got dict"),
        (nn.Flatten(0), r"layer '0'.* got torch.float32 \[20\]"),
        (nn.LSTM(5, 2), r"layer '0'.* got torch.float32 \[1, 4, 2\]"),
    ],
)
def test_outputs_that_cannot_be_mixed(layer, sentence):
    model = nn.Sequential(layer, nn.Identity())
    x = X.expand(3, 4, 5) if isinstance(layer, nn.LSTM) else X
    plan = mm.ManifoldMixup(k=2, layers=("0",)).plan(x)
    with pytest.raises(mm.MixingError, match=sentence):
        mm.plans.run_plan(model, plan, x)
    assert hooks(model) == 0


def test_errors_of_the_model_become_a_mixing_error(net):
    net.stem = nn.Linear(9, 6)
    with pytest.raises(mm.MixingError, match="cannot be multiplied") as raised:
        mm.mixed_forward(net, mm.ManifoldMixup(k=2, layers=("block",)), X, Y)
    assert "shapes cannot be multiplied" in str(raised.value.__cause__)
    assert hooks(net) == 0


def test_hooks_are_there_only_while_needed(net):
    counted = []
    net.head.register_forward_hook(lambda *_: counted.append(hooks(net)))
    mm.mixed_forward(net, mm.ManifoldMixup(k=2, layers=("block",)), X, Y)
    assert counted == [2]
    assert hooks(net) == 1


def test_mix_points_stay_idle_without_a_plan_and_go_when_removed(net):
    clean = net(X)
    with mm.MixPoints(net, ("block", None)) as points:
        assert hooks(net) == 1
        torch.testing.assert_close(net(X), clean)
        plan = mm.ManifoldMixup(k=2, layers=("block",)).plan(X)
        assert mm.plans.run_plan(net, plan, X).shape == (8, 3)
        assert points.plan is None
        torch.testing.assert_close(net(X), clean)
    assert hooks(net) == 0


def test_two_threads_may_mix_the_same_model_at_once(net):
    """Each thread's hooks must let the other's forward pass alone."""
    gate = threading.Barrier(2, timeout=20)

    def meet(*_):
        gate.wait()  # both are inside the model before either mixes

    handle = net.stem.register_forward_hook(meet)
    plans = [mm.ManifoldMixup(k=k, layers=("block",)).plan(X, generator=seeded(k)) for k in (2, 3)]
    results = [None, None]

    def run(i):
        results[i] = mm.plans.run_plan(net, plans[i], X)

    threads = [threading.Thread(target=run, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handle.remove()
    for plan, result in zip(plans, results, strict=True):
        torch.testing.assert_close(result, mm.plans.run_plan(net, plan, X))


def test_two_threads_may_use_the_same_mix_points(net):
    plans = [mm.ManifoldMixup(k=1, layers=("block",)).plan(X, generator=seeded(s)) for s in (1, 2)]
    expected = [mm.plans.run_plan(net, plan, X) for plan in plans]
    wrong = []

    def run(i):
        results = [mm.plans.run_plan(net, plans[i], X) for _ in range(60)]
        wrong.extend(i for result in results if not torch.allclose(result, expected[i]))

    with mm.MixPoints(net, ("block",)):
        threads = [threading.Thread(target=run, args=(i,)) for i in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_mix_points_do_not_keep_the_model_alive_and_come_once():
    model = Net()
    points = mm.MixPoints(model, ("block",))
    with pytest.raises(ValueError, match="MixPoints at block"):
        mm.MixPoints(model, ("stem",))
    gone = weakref.ref(model)
    del model, points
    gc.collect()
    assert gone() is None


def saved_and_loaded(model):
    file = io.BytesIO()
    torch.save(model, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        saved_and_loaded,
        lambda model: torch.optim.swa_utils.AveragedModel(model).module,
    ],
    ids=["deepcopy", "save", "average"],
)
def test_a_model_with_mix_points_can_be_copied_and_the_copy_has_none(net, copied):
    method = mm.ManifoldMixup(k=2, layers=("block",))
    with mm.MixPoints(net, ("block",)):
        twin = copied(net)
        plan = method.plan(X)
        torch.testing.assert_close(twin(X), net(X))
        expected = mm.plans.run_plan(net, plan, X)
    torch.testing.assert_close(mm.plans.run_plan(twin, plan, X), expected)
    with mm.MixPoints(twin, ("block",)):
        torch.testing.assert_close(mm.plans.run_plan(twin, plan, X), expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, saved_and_loaded], ids=["deepcopy", "save"])
def test_a_module_that_keeps_its_mix_points_can_be_copied(net, copied):
    holder = nn.ModuleDict({"net": net})
    holder.points = mm.MixPoints(net, ("block",))
    with holder.points:
        twin = copied(holder)
        assert twin.points is None
        torch.testing.assert_close(twin["net"](X), net(X))


def test_a_layer_that_puts_out_integers_is_refused():
    class Index(nn.Module):
        def forward(self, z):
            return z.argmax(1)

    plan = mm.ManifoldMixup(k=1, layers=("0",)).plan(X)
    with pytest.raises(mm.MixingError, match="layer '0'"):
        mm.plans.run_plan(nn.Sequential(Index(), nn.Identity()), plan, X)


def test_data_parallel_is_refused(net):
    model = nn.DataParallel(net)
    with pytest.raises(mm.MixingError, match="DistributedDataParallel"):
        mm.mixed_forward(model, mm.ManifoldMixup(k=2, layers=("block",)), X, Y)


def test_a_plain_function_works_for_inputs_and_is_refused_for_layers(net):
    assert mm.mixed_forward(lambda x: net(x), mm.InputMixup(k=2), X, Y).logits.shape == (8, 3)
    with pytest.raises(TypeError, match="nn.Module"):
        mm.mixed_forward(lambda x: net(x), mm.ManifoldMixup(k=2, layers=("block",)), X, Y)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch.jit, from torch 2.15 on
def test_scripted_models_are_never_silently_unmixed():
    traced = torch.jit.trace(nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3)), X)
    with pytest.raises(mm.MixingError, match="layer '0'"):
        mm.mixed_forward(traced, mm.ManifoldMixup(k=1, layers=("0",)), X, Y)


class Checkpointed(nn.Module):
    def __init__(self, net, use_reentrant):
        super().__init__()
        self.net, self.use_reentrant = net, use_reentrant

    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=self.use_reentrant)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_gradient_checkpointing_around_the_layer_is_refused(net, k, use_reentrant):
    """The layer would run again in backward, when the plan is gone: for K = 1 nothing else would notice."""
    model = Checkpointed(net, use_reentrant)
    with pytest.raises(mm.MixingError, match="checkpoint"):
        mm.mixed_forward(model, mm.ManifoldMixup(k=k, layers=("net.block",)), X, Y)


def test_unwrapped_sees_through_wrappers(net):
    assert unwrapped(net) == (net, False)
    assert unwrapped(torch.compile(net)) == (net, True)


class Sized(nn.Module):
    """Returns sizes and numbers beside the signal, as swin's stages do."""

    def forward(self, z):
        return z, (2, 3), [z * 2, 7], "name", None


class Unpacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.sized, self.head = Sized(), nn.Linear(5, 3)

    def forward(self, x):
        z, (height, width), (double, seven), _, nothing = self.sized(x)
        assert (height, width, seven, nothing) == (2, 3, 7, None)
        return self.head(z + double)


def test_what_has_no_rows_passes_through_a_mixed_layer():
    model = Unpacked()
    plan = mm.ManifoldMixup(k=3, layers=("sized",)).plan(X, generator=seeded(1))
    torch.testing.assert_close(mm.plans.run_plan(model, plan, X), model.head(3 * plan.mix(X)))


class Masked(nn.Module):
    """Has something with B rows, such as an attention mask, beside the signal."""

    def __init__(self, error):
        super().__init__()
        self.stem, self.error = nn.Linear(5, 3), error

    def forward(self, x):
        mask, z = torch.ones(len(x), 1), self.stem(x)
        if self.error is IndexError:
            return z + torch.stack([mask[i] for i in range(len(z))])
        if self.error is ValueError and len(mask) != len(z):
            raise ValueError("attention mask should be of another size")
        return z + mask


@pytest.mark.parametrize("error", [RuntimeError, IndexError, ValueError])
def test_a_mask_of_b_rows_raises_a_mixing_error(error):
    with pytest.raises(mm.MixingError, match="3 × 4 rows"):
        mm.mixed_forward(Masked(error), mm.ManifoldMixup(k=3, layers=("stem",)), X, Y)
