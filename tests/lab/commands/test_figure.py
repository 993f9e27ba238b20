import csv
import io
from types import SimpleNamespace

import numpy
import pytest
from PIL import Image, ImageColor

from drawn import written
from multimix.lab.cli import main
from multimix.lab.commands.figure import figure
from multimix.lab.evaluation.cache import Query, collect_runs, store_row
from multimix.lab.evaluation.transfer import BirdBoxes, Transfer
from multimix.lab.recipes import recipe
from multimix.lab.results import evaluations
from multimix.lab.results.evaluations import FIGURES, bird_strips
from multimix.lab.results.figures.boxes import BIRD, GAP, NAME
from multimix.lab.results.paper import exhibit
from multimix.lab.storage import append_row
from result_rows import result_row

RESNEXT, IMAGENET = recipe("cifar100_resnext29_4_24"), recipe("imagenet")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, so that no finished runs are found by accident."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add_run(out, own, arm, k, seed, scale="small", **more):
    row = result_row(own, arm, k, seed, [50.0, 40.0 - k + seed], scale=scale, weights=f"{arm}{k}{seed}", **more)
    folder = f"{own.name}/{scale}/{arm}-{k}-{seed}"
    append_row(out / "results.jsonl", row | {"folder": folder})
    return out / folder


@pytest.fixture
def runs(here):
    for arm, k in (("none", 1), ("cutmix", 1), ("cutmix", 5), ("puzzlemix", 1), ("puzzlemix", 5)):
        for seed in range(2):
            place = add_run(here / "runs", RESNEXT, arm, k, seed)
            if (arm, k) == ("puzzlemix", 1):
                numbers = {"increase_1": 0.0, "increase_3": 90.0 + seed, "increase_5": 170.0 + seed}
                store_row(place, Query("training_time", "last", f"{arm}{k}{seed}", {}), numbers=numbers, result={})
    return here / "runs"


@pytest.mark.parametrize(("number", "value"), [("6", "35.50"), ("7", "90.5"), ("8", "0.5")])
def test_a_figure_is_drawn_and_its_numbers_are_printed(runs, here, capsys, number, value):
    figure(number, runs=(runs,), out=here / "figures")
    said = capsys.readouterr()
    assert said.err == ""
    assert f"Fig. {number}: what the paper claims" in said.out
    assert value in said.out
    names = [f"figure-{number}.{ending}" for ending in ("png", "svg", "md", "csv", "html")]
    assert [line for line in said.out.splitlines() if line.startswith("wrote")] == [
        f"wrote {here / 'figures' / name}" for name in names
    ]
    assert sorted(path.name for path in (here / "figures").iterdir()) == sorted(names)
    page = (here / "figures" / names[-1]).read_text()
    assert page.count("<svg ") == 1
    assert page.count('<th scope="col">verdict</th>') + page.count("<dt>verdict</dt>") == 1
    assert list(csv.DictReader(io.StringIO((here / "figures" / f"figure-{number}.csv").read_text())))


def test_without_runs_the_papers_numbers_are_printed_and_nothing_is_written(here, capsys):
    figure("6")
    said = capsys.readouterr()
    assert "21.84" in said.out
    assert said.err == "Fig. 6 has nothing to draw yet; the notes above say what is missing\n"
    assert list(here.iterdir()) == []


def test_without_a_number_figures_are_listed(runs, capsys):
    figure(runs=(runs,))
    said = capsys.readouterr().out
    assert [word for word in ("Fig. 2", "Fig. 5", "Fig. 8") if word in said] == ["Fig. 2", "Fig. 5", "Fig. 8"]
    assert "Table" not in said.partition("\n")[2]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["1"], "the paper has no figure '1' with results"),
        (["spirl"], "did you mean"),
        (["3", "a.png"], "a figure of pictures needs two of them, or none for the two that come with multimix"),
        (["3", "a.png", "b.png"], "there is no picture 'a.png'"),
        (["6", "a.png", "b.png"], "Fig. 6 is not made of two pictures, as Fig. 2 and 3 are: leave out 'a.png'"),
        (["4"], "Fig. 4 shows what multimix demo has trained, and 'multimix-demo' has nothing of it: run multimix demo first"),
        (["5"], "Fig. 5 has nothing to show yet: multimix evaluate RUNS --on transfer draws the birds of a run"),
        (["6", "--runs", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(here, capsys, words, sentence):
    assert main(["figure", *words]) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert not (here / "multimix-figures").exists()


def strip(colour):
    content = io.BytesIO()
    Image.new("RGB", (60, 20), colour).save(content, "PNG")
    return content.getvalue()


def add_birds(out, arm, k, seed, colour):
    place = add_run(out, IMAGENET, arm, k, seed)
    if colour is not None:
        store_row(place, Query("transfer", "last", f"{arm}{k}{seed}", {}), numbers={"error_1": 1.0}, result={})
        (place / "evaluation" / "transfer").mkdir(parents=True)
        (place / "evaluation" / "transfer" / "birds.png").write_bytes(strip(colour))
    return place


def test_birds_are_those_of_the_first_seed_of_every_method(here):
    out = here / "runs"
    add_birds(out, "puzzlemix", 5, 0, "#0000ff")
    add_birds(out, "none", 1, 1, "#00ff00")
    add_birds(out, "none", 1, 0, "#ff0000")
    add_birds(out, "cutmix", 1, 0, None)
    stale = add_birds(out, "mixup", 1, 0, "#000000")
    (stale / "evaluations.jsonl").unlink()  # as if it were of weights that the run no longer has
    strips = bird_strips(exhibit("figure", "5"), "small", collect_runs([out]))
    assert strips == {"no mixup": strip("#ff0000"), "multi-mix (puzzle, K = 5)": strip("#0000ff")}
    figure("5", runs=(out,), out=here / "figures")
    with Image.open(here / "figures" / "figure-5.png") as drawn:
        assert drawn.getpixel((NAME + 5, GAP + 5)) == (255, 0, 0, 255)
        assert drawn.getpixel((NAME + 5, 2 * GAP + 25)) == (0, 0, 255, 255)


def test_why_birds_are_left_out_is_said(here, capsys):
    add_run(here / "runs", IMAGENET, "none", 1, 0, general={"batch": 7})
    assert main(["figure", "5", "--runs", "runs"]) == 2
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("left out of imagenet, since settings are not the recipe's: 1 run (none: ")
    assert last.startswith("Fig. 5 has nothing to show yet")


def test_birds_are_drawn_as_the_network_sees_them(tmp_path, monkeypatch):
    colours = ["#2020c0", "#c0c020", "#c020c0", "#20c0c0"]
    bodies = [[[10, 5, 10, 20]], [[1, 1, 5, 5]], [[0, 0, 9, 9]], [[20, 5, 20, 30]]]
    pictures = [numpy.full((40, 60, 3), ImageColor.getrgb(colour), numpy.uint8) for colour in colours]
    split = written(tmp_path, pictures, [0, 1, 2, 2], bodies)
    monkeypatch.setattr(evaluations, "read_cub200", lambda folder: SimpleNamespace(parts={"test": split}))
    subject = SimpleNamespace(folder=tmp_path, settings=IMAGENET.settings("smoke"))
    side = IMAGENET.settings("smoke").augment.evaluate_crop
    boxes = (BirdBoxes(3, (4.0, 4, 20, 20), ((8.0, 8, 30, 30),)), BirdBoxes(0, (2.0, 2, 9, 9), ()))
    content = FIGURES["transfer"](subject, Transfer("epoch", 3, (), (), boxes))["birds.png"]
    with Image.open(io.BytesIO(content)) as drawn:
        assert drawn.size == (2 * BIRD + GAP, BIRD)
        assert [drawn.convert("RGB").getpixel((x, BIRD - 3)) for x in (BIRD // 2, BIRD + GAP + BIRD // 2)] == [
            ImageColor.getrgb(colours[row]) for row in (3, 0)
        ]
        left = round(4 * BIRD / side)
        reds = [drawn.convert("RGB").getpixel((left, y)) for y in range(left, round(24 * BIRD / side))]
        assert any(red > 180 and green < 90 for red, green, _ in reds)
    assert FIGURES["transfer"](subject, Transfer("epoch", 3, (), ())) == {}
