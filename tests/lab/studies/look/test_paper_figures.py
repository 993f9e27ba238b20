"""Fig. 2 and 3 of the paper show the methods' own mixes, pixel by pixel."""

import numpy as np
import pytest
import torch

from multimix import CutMix, FMix, InputMixup
from multimix.lab.cli import main
from multimix.lab.report.figures import image_grid
from multimix.lab.report.style import png
from multimix.lab.studies.look import cat, dog, paper_interpolations, paper_samples, write_paper_figure
from multimix.lab.studies.look.cases import choose_methods
from multimix.lab.studies.look.look import FIGURE_INCHES, FIGURE_PIXELS, INTERPOLATED, SEED, nearest_sample
from multimix.lab.studies.look.pictures import to_image
from multimix.lab.studies.look.steps import steps

SIZE = 48
PLAIN = {"mixup": InputMixup(), "cutmix": CutMix(), "fmix": FMix()}


@pytest.fixture(scope="module")
def pair():
    return cat(SIZE), dog(SIZE)


def reduced(picture):
    return np.asarray(to_image(picture, FIGURE_PIXELS))


def by_hand(method, pair, lam):
    """The first picture mixed with the second through the method's own plan."""
    x = torch.stack(pair)
    plan = method.plan(x, partner=torch.tensor([1, 0]), lam=lam, generator=torch.Generator().manual_seed(SEED))
    return plan.mix(x).reshape(len(lam), 2, *x.shape[1:])[:, 0], plan.lam[:, 0]


def test_every_sample_is_the_methods_own_mix_at_a_half(pair):
    grid = paper_samples(*pair, methods=list(PLAIN))
    expected = [*pair, *(by_hand(method, pair, [0.5])[0][0] for method in PLAIN.values())]
    for picture, image in zip(expected, grid.images, strict=True):
        assert (image == reduced(picture)).all()
    lams = [by_hand(method, pair, [0.5])[1][0] for method in PLAIN.values()]
    assert grid.titles == ("A", "B", *(f"{name}\nλ = {lam:.2f}" for name, lam in zip(PLAIN, lams, strict=True)))


def test_every_method_that_can_be_shown_is_there(pair):
    chosen = [method for method in choose_methods([], SIZE, lambda sentence: None) if not method.name.startswith("style")]
    grid = paper_samples(*pair, methods=[method.name for method in chosen], note=lambda sentence: None)
    assert len(chosen) > 12
    assert [title.split("\n")[0] for title in grid.titles] == ["A", "B", *(method.name for method in chosen)]
    assert grid.columns == 5
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


def test_four_interpolations_of_three_methods(pair):
    grid = paper_interpolations(*pair)
    assert grid.columns == 6
    assert [title.split("\n")[0] for title in grid.titles[::6]] == ["input mixup: A", "cutmix: A", "puzzle-mix: A"]
    for row, name in enumerate(INTERPOLATED):
        (method,) = choose_methods([name], SIZE, print)
        made = steps(method, *pair, [0.2, 0.4, 0.6, 0.8], seed=SEED)
        assert bool((made.lam.diff() > 0).all())
        for picture, image in zip([pair[0], *made.images, pair[1]], grid.images[6 * row : 6 * row + 6], strict=True):
            assert (image == reduced(picture)).all(), name
    mixed, _ = by_hand(InputMixup(), pair, [0.2, 0.4, 0.6, 0.8])
    assert (grid.images[2] == reduced(mixed[1])).all()


@pytest.mark.parametrize("number", [2, 3])
def test_the_command_draws_two_pictures_in_their_order(tmp_path, pair, number, capsys, monkeypatch):
    for name, picture in zip(("a.png", "b.png"), pair, strict=True):
        to_image(picture, SIZE).save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    methods = ["--methods", "cutmix"] if number == 2 else []
    assert main(["look", "b.png", "a.png", "--figure", str(number), "--size", str(SIZE), *methods]) == 0
    assert capsys.readouterr().out.replace("\\", "/") == f"wrote multimix-look/figure-{number}.png\n"
    grid = paper_samples(*pair[::-1], methods=["cutmix"]) if number == 2 else paper_interpolations(*pair[::-1])
    content = png(image_grid(grid, side=FIGURE_INCHES))
    assert (tmp_path / "multimix-look" / f"figure-{number}.png").read_bytes() == content


def test_methods_of_figure_3_are_fixed(tmp_path, pair):
    with pytest.raises(ValueError, match="methods"):
        write_paper_figure(3, *pair, methods=["cutmix"], size=SIZE, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
