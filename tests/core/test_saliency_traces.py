"""What the saliency pass must leave as it was, whatever the model; and what it refuses."""

import copy
from threading import Barrier, Event, Thread

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.nn.functional import cross_entropy, dropout

import multimix as mm
from multimix.core.saliency import clean_pass
from salient import CLASSES, Network, Salient, images, labels


class Fails(nn.Module):
    def forward(self, z):
        raise ZeroDivisionError


class Draws(nn.Module):
    """Dropout that stays on in evaluation mode."""

    def forward(self, z):
        return dropout(z, 0.5, training=True)


class Merges(nn.Module):
    """Does more than change its mode when told to, as some adapters do."""

    def train(self, mode=True):
        raise AssertionError("the pass sets modes, it calls neither train() nor eval()")

    def forward(self, z):
        return z


def everything(model):
    """All state of a model that a pass could change."""
    return {
        "modes": [module.training for module in model.modules()],
        "tensors": [value.clone() for value in model.state_dict().values()],
        "versions": [value._version for value in [*model.parameters(), *model.buffers()]],
        "grads": [(id(p.grad), None if p.grad is None else p.grad.clone()) for p in model.parameters()],
        "requires": [p.requires_grad for p in model.parameters()],
        "hooks": [len(module._forward_hooks) + len(module._backward_hooks) for module in model.modules()],
        "random": torch.get_rng_state(),
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(left, right) for left, right in zip(a, b, strict=True))
    return a == b


def used_model():
    """A model in the middle of training: mixed modes, one frozen layer, gradients of a step before."""
    model = nn.Sequential(Draws(), Merges(), Network())
    cross_entropy(model(images()), labels()).backward()
    model[2].norm.training = False
    model[2].head.bias.requires_grad_(False)
    model[2].head.bias.grad = None
    return model


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_the_model_changes(fails):
    model, x = used_model(), images()
    if fails:
        model.append(Fails())
    before, versions = everything(model), x._version
    if fails:
        with pytest.raises(ZeroDivisionError):
            mm.input_saliency(model, x, labels())
    else:
        mm.input_saliency(model, x, labels())
    after = everything(model)
    assert {name: same(before[name], after[name]) for name in before} == dict.fromkeys(before, True)
    assert model[2].seen[-1] == (6, False), "the pass itself ran in evaluation mode"
    assert x.grad is None
    assert not x.requires_grad
    assert x._version == versions
    assert torch.is_grad_enabled()


def test_gradient_hooks_of_parameters_stay_silent():
    model, fired = Network(), []
    for p in model.parameters():
        p.register_hook(lambda grad: fired.append("hook"))
        p.register_post_accumulate_grad_hook(lambda p: fired.append("accumulated"))
    mm.input_saliency(model, images(), labels())
    clean_pass(model, images(), labels(), training=True)
    assert fired == []


def test_a_frozen_model():
    model, x, y = Network(), images(), labels()
    expected = mm.input_saliency(model, x, y)
    assert torch.equal(mm.input_saliency(model.requires_grad_(False), x, y), expected)
    assert not any(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("training", [False, True])
def test_autocast_training_is_bit_identical_after_the_pass(training):
    """One autocast region: casts of weights that the pass makes must not serve the training pass with another graph."""

    def gradients(with_pass, no_grad=False):
        model, x, y = Network(dropout=0), images(), labels()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if with_pass:
                with torch.set_grad_enabled(not no_grad):
                    clean_pass(model.eval() if training else model, x, y, training=training)
                model.train()
            loss = cross_entropy(model(x), y)
        loss.backward()
        return [p.grad for p in model.parameters()], loss

    expected = gradients(False)
    for no_grad in (False, True):
        found = gradients(True, no_grad)
        assert same(found[0], expected[0])
        assert torch.equal(found[1], expected[1])


def test_autocast_weights_of_an_inference_pass_do_not_get_in_the_way():
    model, x, y = Network().eval(), images(), labels()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = mm.input_saliency(model, x, y)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        model(x)
        assert torch.equal(mm.input_saliency(model, x, y), expected)


class HalfAndHalf(Network):
    """A head that leaves autocast for full precision."""

    def forward(self, x):
        z = torch.tanh(self.conv(x)).flatten(1)
        with torch.autocast("cpu", enabled=False):
            return self.head(z.float())


def test_autocast_is_used_forward_and_left_backward():
    model, x, y = HalfAndHalf().eval(), images(), labels()
    leaf = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(model(leaf), y, reduction="sum")
        found = clean_pass(model, x, y, training=False).gradient
        assert torch.is_autocast_enabled("cpu")
    loss.backward()
    torch.testing.assert_close(found, leaf.grad, atol=0, rtol=1e-6)
    assert not torch.allclose(found, clean_pass(model, x, y, training=False).gradient, atol=0, rtol=1e-6)


class Quiet(Network):
    """Takes no notes, for which it would be compiled anew."""

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.conv(x))).flatten(1))


@pytest.mark.parametrize("how", ["wrapper", "in place", "one stage", "a function"])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_compiled_models_run_uncompiled_and_are_not_compiled_again(how):
    plain, counter, x, y = Quiet(dropout=0), CompileCounter(), images(), labels()
    model = copy.deepcopy(plain)
    compiled = torch.compile(model, backend=counter) if how == "wrapper" else model
    if how == "in place":
        model.compile(backend=counter)
    elif how == "one stage":
        model.norm = torch.compile(model.norm, backend=counter)
    elif how == "a function":
        model.head.forward = torch.compile(model.head.forward, backend=counter)
    for net in (plain, compiled):
        net(x)
    frames = counter.frame_count
    assert frames > 0
    torch.testing.assert_close(mm.input_saliency(compiled, x, y), mm.input_saliency(plain, x, y))
    clean_pass(compiled, x, y, training=True).loss.backward()
    compiled(x)
    assert counter.frame_count == frames
    torch._dynamo.reset()


@pytest.mark.filterwarnings(
    "ignore:Dynamo does not know how to trace",
    "ignore:Graph break due to unsupported",
    "ignore:The .grad attribute of a Tensor",
)
def test_a_compiled_training_step_is_refused():
    model, before = Network(), everything(Network())
    step = torch.compile(lambda x, y: mm.mixed_forward(model, Salient(k=2), x, y).logits, backend="eager")
    with pytest.raises(mm.MixingError, match="compile the model"):
        step(images(), labels())
    assert same(everything(model)["tensors"], before["tensors"])
    mm.mixed_forward(torch.compile(model, backend="eager"), Salient(k=2), images(), labels())
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("model", "x", "y", "sentence"),
    [
        (
            nn.Embedding(9, 4),
            torch.zeros(6, 3, dtype=torch.long),
            labels(),
            "x, which must be|x must",
        ),
        (lambda x: x, images(), labels(), "nn.Module"),
        (Network(), images().numpy(), labels(), "x must be a torch.Tensor"),
        (Network(), torch.zeros(6), labels(), r"x .*got \[6\]"),
        (Network(), images()[:0], labels()[:0], r"x must .*\[0, 2, 5, 7\]"),
        (Network(), images(), labels()[:5], r"y .*\[5\]"),
        (Network(), images(), labels().to("meta"), "x and y must be on one device"),
        (Network(), images(), labels() + 1, "class indices must"),
        (Network(), images(), labels() - 1, "class indices must"),
        (
            Network(),
            images(),
            torch.rand(6),
            r"y .*got torch.float32 \[6\]",
        ),
        (
            Network(),
            images(),
            torch.rand(6, 1),
            r"y .*got torch.float32 \[6, 1\].*loss=",
        ),
        (Network(), images(), torch.full((6, 4), 0.5), "sum to 1.*loss="),
        (Network(), images(), torch.ones(6, dtype=torch.bool), r"y .*got torch.bool \[6\]"),
        (Network(), images(), -torch.ones(6, CLASSES), "probabilities.*got -1"),
        (Network(), images(), torch.eye(3).repeat(2, 1), r"logits .*got \[6, 4\]"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(70, 1)),
            images(),
            labels(),
            r"logits .*got \[6, 1\]",
        ),
        (nn.Conv2d(2, 4, 1), images(), labels(), r"logits .*got \[6, 4, 5, 7\]"),
    ],
)
def test_inputs_without_saliency_raise(model, x, y, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence) as error:
        mm.input_saliency(model, x, y)
    assert "\n" not in str(error.value)


class Meets(nn.Module):
    """Waits in its first two passes: until both have begun, and in the second until the first has returned."""

    def __init__(self):
        super().__init__()
        self.head, self.both, self.returned = nn.Linear(70, CLASSES), Barrier(2), Event()
        self.modes = []

    def forward(self, x):
        second = self.both.wait(10) == 1
        if second:
            self.returned.wait(10)
        self.modes.append((self.training, self.head.training))
        return self.head(x.flatten(1))


@pytest.mark.parametrize("training", [True, False])
def test_threads_that_ask_one_model_leave_it_as_it_was(training):
    from torch._dynamo import eval_frame

    model = Meets().train(training)
    model.head.train(not training)
    stance = eval_frame._stance

    def ask():
        mm.input_saliency(model, images(), labels())
        model.returned.set()

    threads = [Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert model.modes == [(False, False)] * 2, "the second is still in evaluation mode when the first is done"
    assert (model.training, model.head.training) == (training, not training)
    assert eval_frame._stance == stance, "or compiled models would run uncompiled from now on"


class Deaf(Network):
    """Its logits do not depend on x."""

    def forward(self, x):
        return super().forward(torch.ones_like(x))


class Cut(Network):
    """Nothing it puts out has a gradient."""

    def forward(self, x):
        return super().forward(x).detach()


@pytest.mark.parametrize("model", [Deaf(), Cut()], ids=["deaf", "cut"])
def test_an_input_without_influence(model):
    with pytest.raises(ValueError, match="x does not reach"):
        mm.input_saliency(model, images(), labels())


@pytest.mark.parametrize("loss", [lambda logits, y: logits.sum(1), lambda logits, y: 1.0])
def test_a_loss_must_be_one_number(loss):
    with pytest.raises(ValueError, match="must return a scalar"):
        mm.input_saliency(Network(), images(), labels(), loss=loss)
