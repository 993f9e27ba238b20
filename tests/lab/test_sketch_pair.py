"""The pair of StyleMix that trains on synthetic images."""

import torch

from multimix.lab.sketch_pair import SketchPair, sketch_images
from oracles import seeded


def test_a_pair_that_needs_no_data():
    drawn = sketch_images(40, 3, 9, generator=seeded(9))
    assert drawn.shape == (40, 3, 9, 9)
    assert 0 <= float(drawn.min()) < 0.2 < 0.8 < float(drawn.max()) <= 1
    assert float(drawn.std((2, 3)).mean()) > 0.05
    pair, x = SketchPair(channels=2, side=6, width=2, steps=4), torch.rand(3, 2, 5, 8, generator=seeded(0))
    state = torch.get_rng_state()
    with torch.inference_mode():
        features = pair.encode(x)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(SketchPair(channels=2, side=6, width=2, steps=4).encode(x), features)
    assert pair.trained() is pair.trained("cpu"), "trained once"
    assert not torch.equal(SketchPair(channels=2, side=6, width=2, steps=4, seed=1).encode(x), features)
    assert pair.decode(features).shape == (3, 2, 6, 8)
    assert [len(layer[0]) for layer in pair.layers(x)] == [2, 4]
    assert repr(pair) == "SketchPair(channels=2, side=6, width=2, steps=4, seed=0)"
