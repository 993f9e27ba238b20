"""The Keras snippet: it runs with every kind of method that it can have, and trains as a plain loop does."""

import os

import pytest
import torch
from torch import nn

import multimix as mm
from adapter_pages import METHODS, plain_loop, run_page
from multimix.methods.samix.block import NewBlock
from peers import peer

os.environ["KERAS_BACKEND"] = "torch"
peer("keras")
CASES = [(name, k) for name in METHODS for k in (1, 5) if name not in ("manifold", "network")]


class Same(nn.Module):
    """The network of the page in torch."""

    def __init__(self, weights):
        super().__init__()
        kernel, bias, last, last_bias = (weight.detach().clone() for weight in weights)
        self.conv, self.linear = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 10)
        with torch.no_grad():
            self.conv.weight.copy_(kernel.permute(3, 2, 0, 1))
            self.conv.bias.copy_(bias)
            self.linear.weight.copy_(last.T)
            self.linear.bias.copy_(last_bias)

    def forward(self, x):
        return self.linear(self.conv(x).relu().mean((2, 3)))


def test_the_page_is_a_plain_loop_with_every_kind_of_method(monkeypatch):
    for name, k in CASES:
        seen, forward, first = [], mm.mixed_forward, []

        def watched(model, method, x, y, seen=seen, forward=forward, first=first, **given):
            if not first:
                model(x)  # builds it
                first.append(Same([weight.value for weight in model.model.weights]))
            seen.append((torch.get_rng_state(), x, y))
            return forward(model, method, x, y, **given)

        monkeypatch.setattr(mm, "mixed_forward", watched)
        found = run_page("Keras", name, k, "1")
        monkeypatch.undo()
        assert len(seen) == 4
        states = iter([state for state, *_ in seen])
        batches = [(x, y) for _, x, y in seen]
        (model,) = first
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        epochs = [batches[:2], batches[2:]]
        plain_loop(model, found["method"], epochs, optimizer, before=lambda states=states: torch.set_rng_state(next(states)))
        now = Same([weight.value for weight in found["model"].weights])
        for left, right in zip(now.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(left, right, msg=lambda text, name=name, k=k: f"{name}, k={k}: {text}")


def test_hidden_layers_are_refused():
    with pytest.raises(ValueError, match="no layer '1'"):
        run_page("Keras", "manifold", 5, "1")
    found = run_page("Keras", "cutmix", 5, "1")
    images = torch.as_tensor(found["images"]).movedim(-1, 1)
    with pytest.raises(ValueError, match="no layer '1'"):
        mm.SAMix(block=NewBlock("1")).bind(found["ChannelsFirst"](found["model"]), images)
