"""Tensors of classes of other libraries: fastai's images and labels, torchvision's videos."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import multimix as mm
from oracles import seeded


class Marked(Tensor):
    """As fastai's: what is not of one line of classes is not combined."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if not all(issubclass(cls, kind) or kind is Tensor for kind in types):
            return NotImplemented
        return super().__torch_function__(function, types, args, kwargs or {})


class MarkedImage(Marked):
    pass


class MarkedCategory(Marked):
    pass


class Video(Tensor):
    """Stands for ``torchvision.tv_tensors.Video``."""


X = torch.rand(4, 3, 8, 8, generator=seeded(0))
Y = torch.arange(4)
NET = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))


@pytest.mark.parametrize("method", [mm.CutMix(k=2), mm.InputMixup(k=2), mm.PuzzleMix(k=2)])
def test_marked_tensors_become_plain_and_reach_the_loss(method):
    x, y = X.as_subclass(MarkedImage), Y.as_subclass(MarkedCategory)
    out = mm.mixed_forward(NET, method, x, y, generator=seeded(1))
    expected = mm.mixed_forward(NET, method, X, Y, generator=seeded(1))
    assert out.loss(cross_entropy) == expected.loss(cross_entropy)
    x_mix, target = mm.Mix(method, 5, model=NET)(x, y)
    cross_entropy(NET(x_mix), target)
    if "saliency" not in method.traits.needs:
        plan = method.plan(x)
        cross_entropy(NET(plan.mix(x)), plan.mix_target(y, 5))


@pytest.mark.parametrize("method", [mm.CutMix(k=2), mm.OneOf((mm.InputMixup(), mm.FMix()))])
def test_a_video_is_refused_where_areas_are_cut(method):
    clips = torch.rand(4, 2, 3, 8, 8).as_subclass(Video)
    model = nn.Sequential(nn.Flatten(), nn.Linear(384, 5))
    for call in (
        lambda: method.plan(clips),
        lambda: mm.Mix(method, 5)(clips, Y),
        lambda: mm.mixed_forward(model, method, clips, Y),
    ):
        with pytest.raises(ValueError, match=r"Video .*x.flatten\(1, 2\)"):
            call()
    assert len(mm.Mix(method, 5)(clips.flatten(1, 2).as_subclass(Tensor), Y)[0]) in (4, 8)


@pytest.mark.parametrize("method", [mm.InputMixup(k=2), mm.ManifoldMixup(k=2, layers=("0",))])
def test_a_video_is_mixed_where_nothing_is_cut(method):
    clips = torch.rand(4, 2, 3, 8, 8).as_subclass(Video)
    model = nn.Sequential(nn.Flatten(), nn.Linear(384, 5))
    assert len(mm.mixed_forward(model, method, clips, Y).logits) == 8
