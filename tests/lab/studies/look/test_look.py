import io
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image

import multimix
from made_up import Demanding, Needy, add_methods
from multimix import CoMixup, CutMix, Cutout, FMix, InputMixup, PuzzleMix, RecursiveMix, SageMix
from multimix.lab import sketch_pair
from multimix.lab.data.shapes import cloud_picture
from multimix.lab.method_options import lab_options
from multimix.lab.sketch_pair import SketchPair
from multimix.lab.studies.look import look
from multimix.lab.studies.look.cases import choose_methods, remarks
from multimix.lab.studies.look.look import FIGURE_PIXELS, NO_PARTNER, write_look
from multimix.lab.studies.look.pictures import cat, dog, to_image
from multimix.lab.studies.look.steps import clouds, contrast, ends, steps, takes_lam

SIZE = 48
FINE = [i / 40 for i in range(41)]
REACHES_B = [InputMixup(), FMix(), CutMix(box="shift"), PuzzleMix()]
PAIRED = [*REACHES_B, CutMix(), InputMixup(p=0.0)]


@pytest.fixture(scope="module")
def pair():
    return cat(SIZE), dog(SIZE)


@pytest.fixture(autouse=True)
def _brief_training(monkeypatch):
    """Some steps of training an encoder and a decoder: what they put out is looked at elsewhere."""
    train = sketch_pair._trained_sketch
    short = SketchPair(side=8, width=4, steps=4)
    monkeypatch.setattr(sketch_pair, "_trained_sketch", lambda options, device: train(short, device))


def shown_as(name):
    """The method as ``look`` makes it."""
    (method,) = choose_methods([name], SIZE, print)
    return method


@pytest.mark.parametrize("method", PAIRED, ids=str)
def test_a_path_starts_at_a(pair, method):
    first = steps(method, *pair, FINE, seed=3)
    assert torch.equal(first.images[0], pair[0])
    assert first.lam[0] == 0


@pytest.mark.parametrize("method", REACHES_B, ids=str)
def test_a_path_ends_at_b_where_the_method_promises_it(pair, method):
    last = steps(method, *pair, FINE, seed=3)
    assert torch.equal(last.images[-1], pair[1])
    assert last.lam[-1] == 1


@pytest.mark.parametrize("method", PAIRED, ids=str)
def test_the_realised_share_ascends(pair, method):
    lam = steps(method, *pair, FINE, seed=3).lam
    assert len(lam) == 41
    assert (lam.diff() >= 0).all()
    assert lam[-1] > lam[0]


@pytest.mark.parametrize("method", PAIRED, ids=str)
def test_figure_and_page_show_one_geometry(pair, method):
    fine = steps(method, *pair, FINE, seed=5)
    few = steps(method, *pair, [0.25, 0.5, 0.75], seed=5)
    assert torch.equal(few.images, fine.images[[10, 20, 30]])
    assert torch.equal(few.lam, fine.lam[[10, 20, 30]])


def test_contrast_is_where_brightness_changes():
    picture = torch.zeros(1, 3, 32, 48)
    picture[..., 20:] = 1.0
    found = contrast(picture)
    assert found.shape == (1, 32, 48)
    assert (found[..., 18:21] > 0.3).all()
    assert (found[..., :17] == 0).all()
    assert (found[..., 23:] == 0).all()
    assert torch.allclose(contrast(picture.transpose(2, 3)), found.transpose(1, 2))


def test_puzzle_mix_looks_at_the_contrast(pair):
    """A picture with nothing in it gives way to one with something, block by block."""
    plain, busy = torch.full((3, SIZE, SIZE), 0.5), pair[1]
    shown = steps(PuzzleMix(blocks=(4,), transport="none"), plain, busy, [0.5], seed=0).lam
    turned = steps(PuzzleMix(blocks=(4,), transport="none"), busy, plain, [0.5], seed=0).lam
    assert shown[0] > 0.5 > turned[0]


def test_mixup_fades(pair):
    a, b = pair
    for lam, image in zip((0.25, 0.5), steps(InputMixup(), a, b, [0.25, 0.5], seed=0).images, strict=True):
        assert torch.allclose(image, (1 - lam) * a + lam * b, atol=1e-6)


@pytest.mark.parametrize("method", [CutMix(), FMix()], ids=str)
def test_the_share_is_what_can_be_counted_in_the_picture(pair, method):
    shown = steps(method, torch.zeros(3, SIZE, SIZE), torch.ones(3, SIZE, SIZE), [0.3, 0.6], seed=1)
    assert torch.allclose(shown.images.double().mean((1, 2, 3)), shown.lam)


def test_cutout_goes_from_a_through_growing_holes_and_keeps_the_label(pair):
    shown = steps(Cutout(length=3 * SIZE, fill=0.5), *pair, FINE, seed=4)
    assert len(shown.images) == 41
    assert torch.equal(shown.images[0], pair[0])
    changed = (shown.images != pair[0]).any(1).sum((1, 2))
    assert (changed.diff() >= 0).all()
    assert changed[-1] > 100
    assert (shown.lam == 0).all()


def test_cutout_in_the_figure_has_k_steps_of_its_own(pair):
    shown = steps(Cutout(length=SIZE // 2), *pair, [0.25, 0.5, 0.75], seed=4)
    whole = steps(Cutout(length=SIZE // 2), *pair, FINE, seed=4)
    assert len(shown.images) == 3
    assert torch.equal(shown.images[-1], whole.images[-1])


def decoded(png):
    image = Image.open(io.BytesIO(png))
    assert image.format == "PNG"
    return np.asarray(image.convert("RGB"))


@pytest.fixture
def grids(monkeypatch):
    """The grids that were drawn."""
    seen = []
    draw = look.image_grid
    monkeypatch.setattr(look, "image_grid", lambda grid, **options: seen.append(grid) or draw(grid, **options))
    return seen


def reduced(picture):
    return np.asarray(to_image(picture, FIGURE_PIXELS))


@pytest.mark.parametrize("k", [1, 5])
def test_the_figure_shows_a_then_the_steps_then_b(pair, tmp_path, grids, k):
    names = ["cutmix", "cutout", "puzzlemix"]
    png, _ = write_look(*pair, k=k, methods=names, size=SIZE, out=tmp_path)
    (grid,) = grids
    assert grid.columns == k + 2
    images = grid.images.reshape(3, k + 2, FIGURE_PIXELS, FIGURE_PIXELS, 3)
    titles = [grid.titles[i : i + k + 2] for i in range(0, len(grid.titles), k + 2)]
    for name, row, heads in zip(names, images, titles, strict=True):
        made = steps(shown_as(name), *pair, [i / (k + 1) for i in range(1, k + 1)], seed=0)
        for image, picture in zip(row, [pair[0], *made.images], strict=False):
            assert np.array_equal(image, reduced(picture))
        assert heads[0].startswith(f"{name}: A")
        assert heads[1:-1] == tuple(f"λ = {lam:.2f}" for lam in made.lam)
        assert heads[-1] == (NO_PARTNER if name == "cutout" else "B")
        assert np.array_equal(row[-1], np.full_like(row[-1], 255) if name == "cutout" else reduced(pair[1]))
    assert titles[2][0] == "puzzlemix: A\nsaliency is\nthe contrast"
    assert decoded(png.read_bytes()).shape[1] > 150 * (k + 2)


def test_without_names_every_method_with_pixels_or_points_is_shown():
    notes = []
    names = [method.name for method in choose_methods((), 64, notes.append)]
    assert names == [
        entry.name for entry in multimix.registry.entries() if entry.name not in ("none", "manifoldmix", "alignmixup")
    ]
    assert notes == []


def test_samix_masks_have_the_mean_that_the_label_says(pair):
    """Before black A, a picture divided by B is the mask."""
    b = 0.3 + 0.7 * pair[1]
    shown = steps(shown_as("samix"), torch.zeros_like(b), b, FINE, seed=1)
    mask = (shown.images.double() / b).mean(1)
    assert torch.allclose(mask.mean((1, 2)), torch.tensor(FINE, dtype=torch.float64), atol=1e-5)
    assert torch.allclose(shown.lam, torch.tensor(FINE, dtype=torch.float64))
    assert mask[20].std() > 0.1  # not mixup


@pytest.mark.parametrize("name", ["stylemix", "stylecutmix"])
def test_content_and_style_go_together(pair, name):
    shown = steps(shown_as(name), *pair, FINE, seed=1)
    # On whole pixels a box is not exactly as large as asked.
    assert torch.allclose(shown.lam, torch.tensor(FINE, dtype=torch.float64), atol=0.02)
    assert shown.images.isfinite().all()


def test_recursivemix_pastes_all_of_b_into_boxes_as_large_as_it_draws_them():
    a, b = torch.zeros(3, SIZE, SIZE), torch.full((3, SIZE, SIZE), 0.25)
    b[..., SIZE // 2 :] = 0.75
    shown = steps(RecursiveMix(box="shift"), a, b, FINE, seed=2)
    assert torch.equal(shown.images[0], a)
    assert torch.allclose(shown.lam, RecursiveMix().area * torch.tensor(FINE, dtype=torch.float64), atol=0.03)
    for image, lam in zip(shown.images[10:], shown.lam.tolist()[10:], strict=True):
        there = (image[0] > 0).nonzero()
        (top, left), (bottom, right) = there.amin(0).tolist(), there.amax(0).tolist()
        assert (bottom - top + 1) * (right - left + 1) == len(there) == round(lam * SIZE**2)
        half = (image[0, top] == 0.25).sum()
        assert abs(2 * int(half) - (right - left + 1)) <= 1
        assert (image[0, top : bottom + 1, left : right + 1] == image[0, top, left : right + 1]).all()


@pytest.mark.parametrize("seed", [2, 4])  # in which A's mirror image shows, too
def test_comixup_says_how_much_of_b_and_its_mirror_image_is_in_the_row_of_a(pair, seed):
    """The first channel marks whose pixels are shown."""
    a, b = (torch.cat([torch.full((1, SIZE, SIZE), mark), picture[1:]]) for picture, mark in zip(pair, (0.0, 1.0), strict=True))
    method = shown_as("comixup")
    assert not takes_lam(method)
    shown = steps(method, a, b, [0.2, 0.4, 0.6, 0.8], seed=seed)
    assert len(shown.images) == 4
    assert torch.allclose(shown.images[:, 0].double().mean((1, 2)), shown.lam)
    assert ((shown.lam > 0.05) & (shown.lam < 0.95)).any()
    sources = torch.stack([a, b, a.flip(2), b.flip(2)]).flatten(2)
    places = shown.images.flatten(2)  # every place is one of the four, or two of them half and half
    halves = (sources[:, None] + sources[None]).flatten(0, 1) / 2
    assert (torch.isclose(places[:, None], halves[None], atol=1e-6).all(2).any(1)).all()


def test_two_pictures_alone_would_not_be_mixed_by_comixup(pair):
    x = torch.stack(pair)
    plan = CoMixup(part=2, blocks=(8,)).plan(x, saliency=contrast(x).square())
    assert torch.equal(plan.mix(x), x)


def test_points_go_from_one_cloud_to_the_other_whatever_the_pictures(pair):
    shown = steps(SageMix(), *pair, FINE, seed=1)
    first, last = ends(SageMix(), *pair)
    assert torch.equal(shown.images[0], first)
    assert torch.equal(shown.images[-1], last)
    assert (shown.lam.diff() > 0).all()
    assert torch.equal(shown.images, steps(SageMix(), *pair[::-1], FINE, seed=1).images)
    assert torch.equal(first, cloud_picture(clouds()[0], torch.zeros(400), SIZE))


def test_ends_are_the_pictures_and_no_b_without_a_partner(pair):
    assert all(found is picture for found, picture in zip(ends(RecursiveMix(), *pair), pair, strict=True))
    assert ends(Cutout(length=8), *pair) == (pair[0], None)


def test_what_is_not_as_in_training_is_said():
    said = {method.name: remarks(method) for method in choose_methods((), SIZE, print)}
    assert {name for name, found in said.items() if found.remark} == {name for name, found in said.items() if found.caption}
    plain = {name for name, found in said.items() if not found.remark}
    assert plain == {"cutout", "mixup", "cutmix", "fmix", "saliencymix", "resizemix", "gridmix", "smoothmix"}
    assert "A fixed block stands here for the trained one" in said["samix"].remark
    assert "clouds of points, not pictures: A is a cone and B a torus" in said["sagemix"].remark
    assert "Boxes grow to 0.5 of the picture" in said["recursivemix"].remark
    assert "no order is promised" in said["comixup"].remark


def test_training_ahead_is_announced_before_the_bar_begins(tmp_path, pair):
    said = []

    def track(methods):
        said.append("begun")
        return iter(methods)

    write_look(*pair, methods=["stylemix", "stylecutmix", "mixup"], k=1, size=SIZE, out=tmp_path, track=track, note=said.append)
    assert said == [
        "a small encoder and decoder for stylemix and stylecutmix is trained first, which takes some seconds",
        "begun",
    ]
    assert SketchPair().trained() is SketchPair().trained()


def test_sage_tries_no_more_translations_than_can_be_waited_for():
    assert lab_options("sage").look(16)["positions"] == 0.01
    assert round(lab_options("sage").look(256)["positions"] * 511**2) == 200


@dataclass(frozen=True, kw_only=True)
class Brand(InputMixup):
    """A <new> method of ``k`` steps."""


@dataclass(frozen=True, kw_only=True)
class Deep(InputMixup):
    """Mixes hidden layers by default."""

    @property
    def traits(self):
        return super().traits._replace(mixes_at=(None, "layer1"))


@pytest.fixture
def more_methods(monkeypatch):
    add_methods(monkeypatch, Brand, Needy, Demanding, Deep)


@pytest.mark.usefixtures("more_methods")
def test_a_new_method_appears_by_itself_or_a_note_says_why_not(tmp_path, pair):
    notes = []
    _, html = write_look(*pair, size=SIZE, k=2, out=tmp_path, note=notes.append)
    page = html.read_text()
    assert "<h2>brand</h2>" in page
    assert "A &lt;new&gt; method of <code>k</code> steps." in page
    assert not any(f"<h2>{name}</h2>" in page for name in ("needy", "demanding", "deep"))
    assert [note for note in notes if note.startswith(("needy", "demanding", "deep"))] == [
        "needy is left out: it needs history, which two pictures alone do not give",
        "demanding is left out: it has no default for strength",
    ]


@pytest.mark.usefixtures("more_methods")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none", "none cannot be shown: it mixes nothing"),
        ("manifoldmix", "manifoldmix cannot be shown: it mixes hidden layers, which have no pixels"),
        ("manifold", "manifold cannot be shown: it mixes hidden layers"),
        ("deep", "deep cannot be shown: it mixes hidden layers"),
        ("needy", "needy cannot be shown: it needs history"),
        ("demanding", "demanding cannot be shown: it has no default for strength"),
        ("cutmxi", "no method 'cutmxi' .did you mean 'cutmix'.*; there are none, cutout, mixup"),
    ],
)
def test_a_method_asked_for_by_name_that_cannot_be_shown_is_one_sentence(name, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        choose_methods(["mixup", name], 64, print)
    assert "\n" not in str(caught.value)


def test_names_keep_their_order_and_are_shown_once():
    shown = choose_methods(["fmix", "input", "mixup", "fmix"], 64, print)
    assert [method.name for method in shown] == ["fmix", "mixup"]


def test_look_writes_the_figure_and_the_page(tmp_path, pair, grids):
    tracked = []

    def track(methods):
        for method in methods:
            tracked.append(method.name)
            yield method

    out = tmp_path / "new" / "folder"
    png, html = write_look(*pair, k=3, methods=["cutmix", "fmix"], size=SIZE, seed=2, out=out, track=track)
    assert [png, html] == [out / name for name in ("look.png", "look.html")]
    assert sorted(png.parent.iterdir()) == [html, png]
    assert tracked == ["cutmix", "fmix"]
    middle = steps(FMix(), *pair, [0.25, 0.5, 0.75], seed=2).images[1]
    assert np.array_equal(grids[0].images[7], reduced(middle))


def test_the_seed_decides_everything(tmp_path, pair):
    state = torch.get_rng_state()
    options = {"methods": ["cutmix"], "size": SIZE}
    made = [write_look(*pair, seed=seed, out=tmp_path / str(i), **options) for i, seed in enumerate((0, 0, 1))]
    contents = [(png.read_bytes(), html.read_bytes()) for png, html in made]
    assert contents[0] == contents[1]
    assert contents[0][0] != contents[2][0]
    assert contents[0][1] != contents[2][1]
    assert torch.equal(torch.get_rng_state(), state)


def test_files_are_read_and_pictures_left_unchanged(tmp_path, pair):
    a, b = (picture.clone() for picture in pair)
    to_image(a, SIZE).save(tmp_path / "a.png")
    from_file = write_look(tmp_path / "a.png", b, methods=["mixup"], size=SIZE, out=tmp_path / "file")
    from_tensor = write_look(a, b, methods=["mixup"], size=SIZE, out=tmp_path / "tensor")
    assert from_file[0].read_bytes() == from_tensor[0].read_bytes()
    assert torch.equal(a, pair[0])
    assert torch.equal(b, pair[1])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"k": 0}, "k must be an integer of at least 1, got 0"),
        ({"k": 41}, "k must be at most 40 to fit a figure, got 41"),
        ({"size": 8}, "size must lie in 16 … 512 pixels, got 8"),
        ({"size": 600}, "size must lie in 16 … 512 pixels, got 600"),
        ({"seed": -1}, "seed must lie in 0 … 2.63 − 1, got -1"),
        ({"size": 64}, r"a must have shape \[3, 64, 64\], got \[3, 48, 48\]"),
    ],
)
def test_options_that_cannot_be_used_are_one_sentence(tmp_path, pair, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        write_look(*pair, methods=["mixup"], out=tmp_path / "out", **{"size": SIZE, **options})
    assert not (tmp_path / "out").exists()


def test_a_write_that_fails_leaves_the_old_files_whole(tmp_path, pair, monkeypatch):
    png, html = write_look(*pair, methods=["mixup"], size=SIZE, out=tmp_path)
    before = png.read_bytes(), html.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="cannot write .*look.png': No space left on device"):
        write_look(*pair, methods=["fmix"], size=SIZE, out=tmp_path)
    assert (png.read_bytes(), html.read_bytes()) == before
    assert sorted(tmp_path.iterdir()) == [html, png]


def test_a_file_in_the_place_of_the_folder_is_one_sentence(tmp_path, pair):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ValueError, match="out must be a folder, '.*taken' is a file"):
        write_look(*pair, methods=["mixup"], size=SIZE, out=tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"
