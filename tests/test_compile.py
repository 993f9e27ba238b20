"""torch.compile: mixing compiles whole and once; a compiled model is mixed correctly or refused."""

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import multimix as mm
from multimix.core.hooks import GATHERS_WRONG
from oracles import seeded

pytestmark = pytest.mark.filterwarnings("ignore:Skipping serialization of")  # inductor's own, in torch 2.6

X = torch.randn(8, 3, 16, 12, generator=seeded(0))
Y = torch.arange(8) % 5


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "method",
    [
        mm.InputMixup(k=5),
        mm.InputMixup(k=1, per_pair=True),
        mm.CutMix(k=5),
        mm.CutMix(k=2, per_pair=True),
        mm.FMix(k=2),
        mm.Cutout(k=2),
    ],
    ids=lambda method: type(method).__name__,
)
def test_one_graph_no_breaks_no_recompiling(method):
    counter = CompileCounter()
    apply = torch.compile(lambda plan, x, y: (plan.mix(x), plan.mix_target(y, 5)), fullgraph=True, backend=counter)
    for seed in range(5):
        plan = method.plan(X, generator=seeded(seed))
        mixed, target = apply(plan, X, Y)
        torch.testing.assert_close(mixed, plan.mix(X))
        torch.testing.assert_close(target, plan.mix_target(Y, 5))
    assert counter.frame_count == 1


@pytest.mark.parametrize("method", [mm.InputMixup(k=5), mm.CutMix(k=5)], ids=lambda method: type(method).__name__)
def test_the_real_backend_agrees(method):
    apply = torch.compile(lambda plan, x: plan.mix(x), fullgraph=True)
    plan = method.plan(X, generator=seeded(0))
    torch.testing.assert_close(apply(plan, X), plan.mix(X), atol=1e-6, rtol=1e-6)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 14 * 10, 5))


METHOD = mm.ManifoldMixup(k=3, layers=("0", "1", None))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_compiled_after_mix_points_is_right():
    plain, model, counter = network(), network(), CompileCounter()
    with mm.MixPoints(model, METHOD.layers):
        compiled = torch.compile(model, backend=counter)
        seen = set()
        for seed in range(8):
            out = mm.mixed_forward(compiled, METHOD, X, Y, generator=seeded(seed))
            expected = mm.mixed_forward(plain, METHOD, X, Y, generator=seeded(seed))
            torch.testing.assert_close(out.logits, expected.logits)
            torch.testing.assert_close(out.target, expected.target)
            torch.testing.assert_close(compiled(X), plain(X))
            seen.add(METHOD.plan(X, generator=seeded(seed)).layer)
        frames = counter.frame_count
        mm.mixed_forward(compiled, METHOD, X, Y, generator=seeded(9))
    assert seen == set(METHOD.layers)
    assert counter.frame_count == frames, "nothing is compiled again once every layer has been seen"


class CallingLayer(nn.Module):
    """Overrides ``__call__``, as the layers of transformers do."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def __call__(self, *args, **options):
        return super().__call__(*args, **options)

    def forward(self, z):
        return torch.tanh(self.inner(z))


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList([CallingLayer() for _ in range(3)]), nn.Linear(6, 5)

    def forward(self, z):
        for layer in self.layers:
            z = layer(z)
        return self.head(z)


@pytest.mark.parametrize("layer", ["layers.1", "layers.1.inner"])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_every_call_of_a_compiled_model_is_mixed_whatever_its_layers_are(layer):
    """From the second call on the hooks were once taken for unchanged, and nothing was mixed."""
    torch.compiler.reset()
    model, x, y = Layers(), torch.randn(4, 6, generator=seeded(0)), torch.arange(4)
    method = mm.ManifoldMixup(k=2, layers=(layer,))
    with mm.MixPoints(model, method.layers):
        compiled = torch.compile(model, backend="eager")
        for seed in range(3):
            out, expected = (mm.mixed_forward(net, method, x, y, generator=seeded(seed)) for net in (compiled, model))
            torch.testing.assert_close(out.logits, expected.logits)
            torch.testing.assert_close(compiled(x), model(x))


def test_whether_this_torch_gathers_wrong():
    """The bug for which mixing stays out of compiled graphs (pytorch issue 185509), in torch alone: is this one affected?"""
    before, after = (
        nn.Conv2d(3, 4, 3),
        nn.Sequential(nn.Tanh(), nn.Flatten(), nn.Linear(4 * 6 * 6, 5)),
    )
    generator = seeded(0)
    with torch.no_grad():
        for weight in (*before.parameters(), *after.parameters()):
            weight.uniform_(-0.5, 0.5, generator=generator)
    x, partner = (
        torch.randn(8, 3, 8, 8, generator=generator),
        torch.randperm(8, generator=generator),
    )
    share = torch.rand(3, 1, 1, 1, 1, generator=generator)

    def loss(x, partner, share):
        z = before(x)
        return after(torch.lerp(z, z[partner], share).flatten(0, 1)).square().mean()

    (right,), (found,) = (torch.autograd.grad(run(x, partner, share), [before.weight]) for run in (loss, torch.compile(loss)))
    error = float((found - right).norm() / right.norm())
    assert (error > 1e-3) == GATHERS_WRONG, f"the gradient is off by {error:.2g} of its length with torch {torch.__version__}"


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("layer", ["0", "1"])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_gradients_through_a_compiled_model_are_right(layer, k):
    """With the real backend: it once gave right logits and wrong gradients (layer 0, K = 3), or failed (K = 1)."""
    method, x = mm.ManifoldMixup(k=k, layers=(layer,)), torch.randn(8, 3, 8, 8, generator=seeded(2))
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 6 * 6, 5))
    model = copy.deepcopy(plain)
    with mm.MixPoints(model, method.layers):
        compiled = torch.compile(model)
        for net in (plain, compiled):
            mm.mixed_forward(net, method, x, Y, generator=seeded(1)).loss().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("run_before", [False, True])
@pytest.mark.parametrize("how", ["wrapper", "in place", "one stage"])
def test_compiled_without_mix_points_is_refused(how, run_before):
    model = network()
    if how == "wrapper":
        compiled = torch.compile(model, backend="eager")
    else:
        compiled = model
        (model if how == "in place" else model[0]).compile(backend="eager")
    if run_before:
        compiled(X)
    with pytest.raises(mm.MixingError, match="compiled .*layer '0'"):
        mm.mixed_forward(compiled, mm.ManifoldMixup(k=1, layers=("0",)), X, Y)
    assert mm.mixed_forward(compiled, mm.CutMix(k=2), X, Y).logits.shape == (16, 5)


def test_mix_points_come_before_compiling():
    with pytest.raises(ValueError, match="before torch.compile"):
        mm.MixPoints(torch.compile(network(), backend="eager"), ("0",))


@pytest.mark.filterwarnings(
    "ignore:Dynamo does not know how to trace",
    "ignore:Graph break due to unsupported",
    "ignore:The .grad attribute of a Tensor",
)
def test_a_compiled_training_step_is_right_or_refused():
    model, generator = network(), torch.Generator()

    def logits(x, y):
        return mm.mixed_forward(model, METHOD, x, y, generator=generator).logits

    step = torch.compile(logits, backend="eager")
    for seed in range(4):
        generator.manual_seed(seed)
        try:
            found = step(X, Y)
        except mm.MixingError:
            continue
        expected = mm.mixed_forward(model, METHOD, X, Y, generator=seeded(seed))
        torch.testing.assert_close(found, expected.logits)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # dynamo's own look
@pytest.mark.parametrize("part", ["whole", "inside"])
def test_the_clean_loss_of_a_compiled_model_with_batch_norm(part):
    """Clean pass kept, compiled mixed pass, one backward: as without compiling, batch norm's statistics included."""
    torch.manual_seed(0)
    plain = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    inner = copy.deepcopy(plain)
    if part == "inside":
        inner[1] = torch.compile(inner[1], backend="aot_eager")
    compiled = inner if part == "inside" else torch.compile(inner, backend="aot_eager")
    method, x = mm.PuzzleMix(k=2, clean_weight=1.0), X.sigmoid()
    for step in range(2):
        losses = [mm.mixed_forward(model, method, x, Y, generator=seeded(step)).loss() for model in (plain, compiled)]
        for loss in losses:
            loss.backward()
        torch.testing.assert_close(*losses)
    for ours, expected in zip(inner.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, expected.grad, atol=1e-5, rtol=1e-4)
    for ours, expected in zip(inner.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, expected)
    assert int(plain[1].num_batches_tracked) == 4
