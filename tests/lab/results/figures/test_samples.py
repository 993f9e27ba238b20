"""The first update of a run that mixes is drawn again: bit for bit what its network saw."""

from itertools import islice
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

import multimix as mm
from multimix.lab.results.figures import samples
from multimix.lab.results.figures.samples import first_batch, plain_picture, samples_picture
from multimix.lab.training.loop import Training
from multimix.lab.training.run import engine
from multimix.methods.samix.block import NewBlock
from trial import PUZZLE, settings, splits

METHODS = {
    "mixup": mm.InputMixup(k=3),
    "cutmix": mm.CutMix(k=2),
    "puzzlemix": PUZZLE,
    "none": mm.NoMix(),
    "cutout": mm.Cutout(length=3),
    "recursivemix": mm.RecursiveMix(k=3),
    "samix": mm.SAMix(k=2, block=NewBlock("stage1"), margin=0.0),
}
LATER = {"recursivemix": (1, 1), "samix": (0, 1)}  # the update and the pass that mix: before them there is an unmixed one


def seen_by_a_training(chosen, seed, update, passed):
    """The batch before mixing and what the network was given in a pass with gradients, in a real training."""
    training = Training(chosen, seed, splits(), engine(chosen))
    clean = list(training.loaders(0)[0].epoch(0))[update][0]
    found = []

    def look(module, given):
        if module.training:  # the pass for saliency is in evaluation mode
            found.append(given[0].detach().clone())

    training.network.register_forward_pre_hook(look)
    training.run(None)
    return clean, found[passed]


@pytest.mark.parametrize("name", METHODS)
def test_it_is_what_the_network_saw(name):
    chosen = settings(method=METHODS[name], channels_last=False, epochs=1)
    update, passed = LATER.get(name, (0, 0))
    clean, seen = seen_by_a_training(chosen, 7, update, passed)
    batch = first_batch(chosen, 7, splits()["train"].subset(20, 0))
    assert batch.update == ("first", "second")[update]
    assert torch.equal(batch.x, clean)
    assert torch.equal(batch.mixed.flatten(0, 1), seen)
    assert batch.layer is None
    assert batch.lam.shape == (len(batch.mixed), len(batch.x))


def test_what_is_remembered_is_shown_beside_it(monkeypatch):
    """The first batch has nothing to be mixed with: the second is shown, and its partners are those of the first."""
    chosen, train = settings(method=mm.RecursiveMix(k=2, area=1.0)), splits()["train"].subset(20, 0)
    before, now = islice(Training(chosen, 3, splits(), engine(chosen)).loaders(0)[0].epoch(0), 2)
    batch = first_batch(chosen, 3, train)
    assert batch.lam.min() > 0
    assert torch.equal(batch.x_pair, before[0])
    assert torch.equal(batch.y_pair, before[1])
    drawn = []
    monkeypatch.setattr(samples, "_grid", lambda rows, chosen: drawn.extend(one for row in rows for one in row))
    samples_picture(batch, chosen, train.classes, pairs=2)
    for row in (0, 1):
        pictures, titles = zip(*drawn[4 * row : 4 * row + 4], strict=True)
        expected = [now[0][row], *batch.mixed[:, row], before[0][row]]
        assert all(torch.equal(*pair) for pair in zip(pictures, expected, strict=True))
        own, past = (train.classes[int(y[row])] for y in (now[1], before[1]))
        assert [titles[0], titles[-1]] == [own, past]
        assert titles[1].startswith("λ = ")
    assert len(drawn) == 8


def test_an_epoch_of_one_update_never_mixes_with_a_history():
    chosen = settings(method=mm.RecursiveMix(k=2), batch=200)
    batch = first_batch(chosen, 0, splits()["train"].subset(20, 0))
    assert batch.update == "first"
    assert torch.equal(batch.mixed[0], batch.x)
    assert torch.equal(batch.x_pair, batch.x)


def test_another_seed_and_untouched_streams():
    chosen = settings(method=METHODS["mixup"])
    train = splits()["train"].subset(20, 0)
    torch.manual_seed(5)
    first = torch.rand(1)
    torch.manual_seed(5)
    one, other = first_batch(chosen, 1, train), first_batch(chosen, 2, train)
    assert torch.equal(torch.rand(1), first), "the global stream goes on as if nothing had been"
    assert not torch.equal(one.x, other.x)


def test_mixed_inside_the_network():
    chosen = settings(method=mm.ManifoldMixup(k=2, layers=("stage1",)))
    batch = first_batch(chosen, 0, splits()["train"].subset(20, 0))
    assert batch.mixed is None
    assert batch.layer == "stage1"
    assert picture(samples_picture(batch, chosen, splits()["train"].classes))


def test_pictures_grow_with_k_and_pairs():
    train = splits()["train"].subset(20, 0)
    sizes = {}
    for k, pairs in ((1, 2), (5, 2), (5, 4)):
        chosen = settings(method=mm.InputMixup(k=k))
        batch = first_batch(chosen, 0, train)
        sizes[k, pairs] = picture(samples_picture(batch, chosen, train.classes, pairs=pairs))
    assert sizes[5, 2][0] > sizes[1, 2][0]
    assert sizes[5, 4][1] > sizes[5, 2][1]
    chosen = settings(method=mm.NoMix())
    assert picture(plain_picture(first_batch(chosen, 0, train), chosen, train.classes, count=3))


LONG = (
    "Black_footed_Albatross",
    "great crested flycatcher of the north",
    "WWWWWWWWWWWWWWWWWWWW MMMMMMMMMMMMMMMMMM",
    "cat",
    "Pneumonoultramicroscopicsilicovolcanoconiosis",
    "American crocodile, Crocodylus acutus",
    "a-b-c-d-e-f-g-h-i-j-k-l-m-n-o-p",
    "ILLILLILLILLILLILL",
    "@@@@@@@@%%%%%%%%",
    "     ",
)


@pytest.mark.parametrize("pictures", [plain_picture, samples_picture])
def test_long_names_of_classes_leave_room_for_each_other(monkeypatch, pictures):
    chosen, train = settings(method=mm.InputMixup(k=1)), splits()["train"].subset(20, 0)
    batch = first_batch(chosen, 1, train)
    batch = batch._replace(y=torch.arange(len(batch.y)) % 10, y_pair=torch.arange(len(batch.y)) % 10)
    monkeypatch.setattr(samples, "svg", lambda figure: figure)
    figure = pictures(batch, chosen, LONG)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    seen = [axes.title.get_window_extent(canvas.get_renderer()) for axes in figure.axes if axes.title.get_text()]
    assert len(seen) >= 8
    for i, one in enumerate(seen):
        assert one.x0 >= 0
        assert one.x1 <= figure.bbox.x1
        assert one.y1 <= figure.bbox.y1
        assert not any(one.overlaps(other) for other in seen[:i])


def test_names_are_broken_where_words_end_and_short_ones_stay():
    assert samples.in_lines("cat") == "cat"
    assert samples.in_lines("Black_footed_Albatross") == "Black_footed_\nAlbatross"
    assert samples.in_lines("λ = 0.25") == "λ = 0.25"
    first, second = samples.in_lines("great crested flycatcher of the north").split("\n")
    assert first == "great crested"
    assert second.startswith("flycatcher")
    assert second.endswith("…")


def picture(content):
    """Width and height of an SVG."""
    root = ElementTree.fromstring(content)
    return tuple(float(root.get(side).removesuffix("pt")) for side in ("width", "height"))
