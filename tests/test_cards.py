"""The Python on the cards of the methods runs as it stands there."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

import multimix as mm
from multimix.lab.nets.pointnet import PointNet
from multimix.lab.sketch_pair import SketchPair
from multimix.methods.samix.block import MixBlock, NewBlock
from multimix.methods.style import vgg_pair as style_vgg

CARDS = sorted((Path(__file__).parents[1] / "docs" / "methods").glob("*.md"))
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
CODED = [card for card in CARDS if BLOCK.search(card.read_text())]


class Layers(nn.Module):
    """Layers of the names that the cards use, in the manner of a small residual network."""

    def __init__(self):
        super().__init__()
        widths = [3, 4, 6, 8, 10]
        for i, (a, b) in enumerate(pairwise(widths), start=1):
            self.add_module(f"layer{i}", nn.Sequential(nn.Conv2d(a, b, 3, stride=1 + i % 2, padding=1), nn.ReLU()))
        self.fc = nn.Linear(10, 100)

    def forward(self, x):
        for name in ("layer1", "layer2", "layer3", "layer4"):
            x = getattr(self, name)(x)
        return self.fc(x.mean((2, 3)))


def known(card):
    """What a reader of the card has at hand."""
    x, y = torch.rand(8, 3, 16, 16), torch.arange(8) % 100
    names = {"mm": mm, "torch": torch, "nn": nn, "model": Layers(), "x": x, "y": y, "loader": [(x, y)] * 2, "images": x}
    names |= {"any_map": torch.rand(8, 16, 16), "attention": torch.rand(8, 16, 16), "total_steps": 2, "target": None}
    names |= {"MixBlock": MixBlock, "NewBlock": NewBlock, "encoder": nn.Conv2d(3, 4, 3), "decoder": nn.Conv2d(4, 3, 3)}
    if card.stem == "samix":
        names["model"].layer3 = nn.Sequential(nn.Conv2d(6, 256, 1), nn.Conv2d(256, 256, 3, padding=1))
        names["model"].layer4 = nn.Conv2d(256, 10, 1)
    if card.stem == "sagemix":
        names |= {"model": PointNet(), "x": torch.rand(8, 32, 3), "y": torch.arange(8) % 5, "any_map": torch.rand(8, 32)}
    if card.stem == "stylecutmix":
        batch = torch.rand(100, 3, 8, 8), torch.arange(100)
        names |= {"pair": SketchPair(), "loader": [batch], "x": batch[0], "y": batch[1]}
    return names


@pytest.mark.parametrize("card", CODED, ids=lambda path: path.stem)
def test_python_blocks_run(card, monkeypatch):
    monkeypatch.setattr(style_vgg, "load_adain_pair", lambda *files: SketchPair())  # the published weights are not at hand
    torch.manual_seed(0)
    names = known(card)
    for block in BLOCK.findall(card.read_text()):
        exec(compile(block.replace("=…", "=0.5"), card.name, "exec"), names)
    numbers = [value for value in names.values() if isinstance(value, torch.Tensor) and value.is_floating_point()]
    assert all(value.isfinite().all() for value in numbers)


def test_there_are_such_cards():
    assert len(CODED) >= 12
