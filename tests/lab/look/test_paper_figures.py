"""Fig. 2 and 3 of the paper show what the methods give, pixel by pixel."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from multimix import CutMix, FMix, InputMixup
from multimix.lab.look.figure import CELL, Sample, corner, sample_corners, samples_figure
from multimix.lab.look.look import choose_methods
from multimix.lab.look.paper_figures import INTERPOLATED, SEED, four_interpolations, nearest_sample, one_sample_each
from multimix.lab.look.pictures import cat, dog, to_image
from multimix.lab.look.steps import steps

SIZE = 48
PLAIN = {"mixup": InputMixup(), "cutmix": CutMix(), "fmix": FMix()}


@pytest.fixture(scope="module")
def pair():
    return cat(SIZE), dog(SIZE)


def pixels(content):
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def shown(sheet, left, top):
    return sheet[top : top + CELL, left : left + CELL]


def by_hand(method, pair, lam):
    """The first picture mixed with the second through the method's own plan."""
    x = torch.stack(pair)
    plan = method.plan(x, partner=torch.tensor([1, 0]), lam=lam, generator=torch.Generator().manual_seed(SEED))
    return plan.mix(x).reshape(len(lam), 2, *x.shape[1:])[:, 0], plan.lam[:, 0]


def test_every_sample_is_the_methods_own_mix_at_a_half(pair):
    sheet = pixels(one_sample_each(*pair, methods=list(PLAIN)))
    places = sample_corners([Sample("", pair[0])] * 5, 5)
    expected = [*pair, *(by_hand(method, pair, [0.5])[0][0] for method in PLAIN.values())]
    for picture, place in zip(expected, places, strict=True):
        assert (shown(sheet, *place) == np.asarray(to_image(picture, CELL))).all()


def test_every_method_that_can_be_shown_is_there(pair):
    chosen = [method for method in choose_methods([], SIZE, lambda sentence: None) if not method.name.startswith("style")]
    sheet = pixels(one_sample_each(*pair, methods=[method.name for method in chosen], note=lambda sentence: None))
    assert len(chosen) > 12
    assert sheet.shape[1] == sample_corners([Sample("", pair[0])] * 5, 5)[-1][0] + CELL + 18
    for method in chosen:
        picture, lam = nearest_sample(method, *pair, SEED)
        assert picture.shape == pair[0].shape
        assert 0 <= lam <= 1


def test_a_method_that_takes_no_share_shows_its_step_nearest_to_a_half(pair):
    (method,) = choose_methods(["comixup"], SIZE, print)
    made = steps(method, *pair, [i / 6 for i in range(1, 6)], seed=SEED)
    picture, lam = nearest_sample(method, *pair, SEED)
    gaps = [abs(float(one) - 0.5) for one in made.lam]
    assert abs(lam - 0.5) == min(gaps)
    assert torch.equal(picture, made.images[gaps.index(min(gaps))])
    assert not torch.equal(picture, pair[0])


def test_remarks_have_room_below_the_pictures(pair):
    samples = [Sample("one", pair[0], 0.5, "three\nshort\nlines"), Sample("two", pair[1], 0.25), Sample("three", pair[0], 0.75)]
    sheet = pixels(samples_figure(samples, columns=2))
    (left, top), (right, same), (below, lower) = sample_corners(samples, 2)
    assert (left, same) == (below, top)
    assert right >= left + CELL
    words = (sheet[top + CELL : lower, left : left + CELL] < 200).any((1, 2)).nonzero()[0]
    assert words[-1] < lower - top - CELL - 4  # white between the last line and the next picture
    for sample, place in zip(samples, ((left, top), (right, same), (below, lower)), strict=True):
        assert (shown(sheet, *place) == np.asarray(to_image(sample.picture, CELL))).all()


def test_four_interpolations_of_three_methods(pair):
    sheet = pixels(four_interpolations(*pair))
    assert list(INTERPOLATED.values()) == ["input mixup", "cutmix", "puzzle-mix"]
    for line, name in enumerate(INTERPOLATED):
        (method,) = choose_methods([name], SIZE, print)
        made = steps(method, *pair, [0.2, 0.4, 0.6, 0.8], seed=SEED)
        assert bool((made.lam.diff() > 0).all())
        for column, picture in enumerate([pair[0], *made.images, pair[1]]):
            assert (shown(sheet, *corner(line, column)) == np.asarray(to_image(picture, CELL))).all(), (name, column)
    mixed, _ = by_hand(InputMixup(), pair, [0.2, 0.4, 0.6, 0.8])
    assert (shown(sheet, *corner(0, 2)) == np.asarray(to_image(mixed[1], CELL))).all()
