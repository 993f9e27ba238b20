"""The code of docs/adapters.md, with any method in it, and a plain loop to compare with."""

import re
from pathlib import Path

import torch

import multimix as mm

PAGE = Path(__file__).parents[1] / "docs" / "adapters.md"
SAMIX = 'mm.SAMix(k={k}, block=NewBlock("{layer}", momentum=0.5)).bind(model, images, updates=4)'
METHODS = {
    "cutmix": "mm.CutMix(k={k})",
    "puzzlemix": "mm.PuzzleMix(k={k}, blocks=(2,))",
    "clean loss": "mm.PuzzleMix(k={k}, blocks=(2,), clean_weight=1.0)",
    "manifold": 'mm.ManifoldMixup(k={k}, layers=("{layer}",))',
    "history": "mm.RecursiveMix(k={k})",
    "network": SAMIX,
    "sometimes": "mm.CutMix(k={k}, p=0.5)",
}
CASES = [(name, k) for name in METHODS for k in (1, 5)]


def run_page(section, name, k, layer, **replaced):
    """The names of the section's code after it ran with the method ``name``; ``layer`` is one of the model."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    for old, new in {"mm.CutMix(k=5)": METHODS[name].format(k=k, layer=layer), **replaced}.items():
        assert old in block
        block = block.replace(old, new)
    torch.manual_seed(0)
    names = {"NewBlock": mm.methods.samix.block.NewBlock}
    exec(compile(block, "adapters.md", "exec"), names)
    return names


def plain_loop(model, method, epochs, optimizer, *, loss=mm.losses.soft_cross_entropy, parts=1, before=lambda: None):
    """``model`` trained as the README says on ``epochs``, lists of batches; an update for every ``parts`` of them.

    ``before`` is called ahead of each batch.
    """
    model.train()
    for batches in epochs:
        state = None
        for i, (x, y) in enumerate(batches):
            before()
            out = mm.mixed_forward(model, method, x, y, state=state)
            (out.loss(loss) / parts).backward()
            state = out.state
            if (i + 1) % parts == 0:
                optimizer.step()
                method.after_step(model)
                optimizer.zero_grad()


def same_weights(a, b):
    """Whether two modules hold the same numbers, bit for bit."""
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
