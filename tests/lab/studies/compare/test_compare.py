"""The whole command on small folders: made up, birds, images of CIFAR-100, words; killed and resumed; a page in a browser."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import numpy
import pytest
import torch
from PIL import Image

from browser import in_browser, in_frame
from multimix.lab import cli
from multimix.lab.data import read
from multimix.lab.data.own_folder import read_folder
from multimix.lab.nets import network
from multimix.lab.storage import read_rows
from multimix.lab.studies.compare import budget, compare_folder, run
from multimix.lab.studies.compare.image_folder import write_folder
from multimix.lab.studies.compare.run import Plan, Request
from multimix.lab.studies.compare.setup import FolderSetup
from peers import peer
from real_data import real_folder

SMALL = {"methods": ("cutmix",), "ks": (2,), "seeds": 2, "budget": "10h"}
QUICK = {"data.side": "32", "network.options": "stem_stride=4", "batch": "8"}


@pytest.fixture(autouse=True)
def two_epochs(monkeypatch):
    """However fast the machine is, every run has two epochs."""
    monkeypatch.setattr(budget, "MAX_EPOCHS", 2)
    monkeypatch.setattr(budget, "MIN_EPOCHS", 2)


def pictures(folder, count, colour=0):
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        pixels = numpy.random.default_rng([crc32(folder.name.encode()), i]).integers(0, 128, (40, 50, 3), dtype=numpy.uint8)
        pixels[..., colour] += 100
        Image.fromarray(pixels).save(folder / f"{i}.png")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "my photos"
    for colour, name in enumerate(("rot & weiß", "grün <b>", "blau")):
        pictures(folder / name, 10, colour)
    (folder / "blau" / "kaputt.jpg").write_bytes(b"no picture")
    return folder


@pytest.fixture(scope="module")
def compared(photos, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "MAX_EPOCHS", 2)
        patch.setattr(budget, "MIN_EPOCHS", 2)
        messages = []
        page, result = compare_folder(photos, out=tmp_path_factory.mktemp("out"), changes=QUICK, note=messages.append, **SMALL)
    return page, result, messages


@pytest.mark.slow
def test_every_run_gets_as_many_updates(compared):
    _, result, _ = compared
    rows = result.study.rows
    assert len(rows) == 4
    assert {row["epochs"][-1]["updates"] for row in rows} == {2 * (24 // 8)}
    assert {row["train_samples"] for row in rows} == {24}


@pytest.mark.slow
def test_what_is_said_on_the_way(compared):
    _, _, messages = compared
    assert "3 classes, 25 pictures for training, 6 for testing; squares of 32 pixels" in messages[0]  # with the broken one
    assert any(words.startswith("2 ways of training × 2 seeds = 4 runs of 2 epochs (") for words in messages)
    assert any("kaputt.jpg is not an image" in words for words in messages)


@pytest.mark.slow
@in_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_answers(compared, tmp_path, width):
    page, result, _ = compared
    seen = in_frame(page, width, tmp_path)
    assert seen["requests"] == []
    assert seen["widths"][1] <= seen["widths"][0], "nothing is wider than the screen"
    text, source = seen["text"], page.read_text()
    assert "Which mixing is best for my photos?" in text
    assert result.answer.headline in text
    for words in (
        "Use it",
        "Results",
        "Your samples, mixed",
        "Calibration",
        "Classes",
        "Your folder",
    ):
        assert words in text
    assert "grün &lt;b&gt;" in source
    assert "1 unreadable file was skipped" in source
    assert source.count("<image") >= 2 * 8, "samples of both ways of training"


@pytest.mark.slow
def test_a_killed_comparison_goes_on_with_the_same_plan(photos, compared, tmp_path, monkeypatch):
    code = (
        "import os, signal, sys\n"
        "from multimix.lab.studies.compare import budget, run\nfrom multimix.lab.training import run as training\n"
        "budget.MAX_EPOCHS = budget.MIN_EPOCHS = 2\n"
        "append, count = training.append_row, [0]\n"
        "def killing(*given):\n    append(*given)\n    count[0] += 1\n"
        "    count[0] == 2 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "training.append_row = killing\n"
        f"run.compare_folder({str(photos)!r}, out={str(tmp_path)!r}, changes={QUICK!r}, **{SMALL!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = read_rows(tmp_path / "results.jsonl")
    assert len(before) == 2
    monkeypatch.setattr(run, "update_seconds", None)  # nothing is measured again
    messages = []
    _, result = compare_folder(photos, out=tmp_path, changes=QUICK, note=messages.append, **SMALL)
    assert "resuming with the stored plan" in messages
    rows = read_rows(tmp_path / "results.jsonl")
    assert rows[:2] == before
    weights = {row["weights"] for row in compared[1].study.rows}
    assert {row["weights"] for row in rows} == weights  # as if it had never been killed
    assert len(rows) == 4
    assert len(result.study.trained) == 2


@pytest.mark.slow
def test_another_folder_needs_another_place(compared, tmp_path):
    for name in ("a", "b"):
        pictures(tmp_path / name, 3)
    with pytest.raises(ValueError, match=r"^out .* holds a comparison of other files, of .*my photos: "):
        compare_folder(tmp_path, out=compared[0].parent, **SMALL)


@pytest.mark.slow
def test_two_classes_of_five(tmp_path, capsys):
    for name in ("a", "b"):
        pictures(tmp_path / "set" / name, 5)
    words = [*("compare", str(tmp_path / "set"), "--methods", "mixup", "--ks", "1", "--seeds", "1", "--budget", "10h")]
    assert cli.main([*words, "--out", str(tmp_path / "out"), "--data.side", "32"]) == 0
    assert "one seed cannot distinguish" in capsys.readouterr().out
    assert (tmp_path / "out" / "compare.html").exists()


@pytest.mark.slow
def test_birds(tmp_path):
    source = Path(real_folder("cub200")) / "CUB_200_2011" / "images"
    for name in sorted(path.name for path in source.iterdir())[:3]:
        (tmp_path / "birds" / name).mkdir(parents=True)
        for path in sorted((source / name).iterdir())[:10]:
            os.symlink(path, tmp_path / "birds" / name / path.name)
    page, result = compare_folder(tmp_path / "birds", out=tmp_path / "out", changes={"data.side": "32"}, **SMALL)
    assert result.setup.network == "preact_resnet18_small"
    assert len(result.splits["train"].classes) == 3
    assert result.study.trained
    assert page.exists()


@pytest.mark.slow
def test_images_of_cifar100(tmp_path):
    splits = read("cifar100", real_folder("cifar100"))
    for part in ("train", "test"):
        some = splits[part]
        for label in range(3):
            (tmp_path / "set" / part / some.classes[label]).mkdir(parents=True)
            for i in (some.labels == label).nonzero().flatten().tolist()[:12]:
                pixels = some.pixels[i].permute(1, 2, 0).numpy()
                Image.fromarray(pixels).save(tmp_path / "set" / part / some.classes[label] / f"{i}.png")
    _, result = compare_folder(tmp_path / "set", out=tmp_path / "out", **SMALL)
    assert result.setup.side == 32
    assert not result.splits.divided
    seen = {row.numpy().tobytes() for row in result.splits["test"].pixels}
    assert len(seen) == 36
    assert seen <= {row.numpy().tobytes() for row in splits["test"].pixels[splits["test"].labels < 3]}


class Tiny(torch.nn.Sequential):
    """A network of one's own, without layers that manifold mixup knows by name."""

    def __init__(self, num_classes):
        super().__init__(
            torch.nn.Conv2d(3, 4, 3, 4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 8 * 8, num_classes)
        )


@pytest.mark.slow
def test_a_network_of_ones_own_and_a_method_that_it_cannot_have(photos, tmp_path):
    messages = []
    options = {**SMALL, "methods": ("cutmix", "manifoldmix"), "model": f"{__name__}:Tiny", "seeds": 1}
    page, result = compare_folder(photos, out=tmp_path, changes={"data.side": "32"}, note=messages.append, **options)
    assert [group.arm for group in result.study.trained] == ["none", "cutmix"]
    assert any(sentence.startswith("skipping manifoldmix K = 2, ") for sentence in messages)
    assert "manifoldmix K = 2 was skipped" in page.read_text()
    assert result.answer.best.evaluated("error"), "its code was trusted, since it was named"


@pytest.mark.slow
def test_a_network_of_timm(photos, tmp_path):
    peer("timm")
    options = {**SMALL, "model": "timm/test_resnet", "seeds": 1}
    _, result = compare_folder(photos, out=tmp_path, changes={"data.side": "32"}, note=lambda words: None, **options)
    assert type(result.planned[0].run.settings.network.built(3, 3)).__module__.startswith("timm.")
    assert len(result.study.trained) == 2
    assert FolderSetup(photos, "timm/vit_tiny_patch16_224", {}).side == 224, "it takes no other size"
    with pytest.raises(ValueError, match=r"^timm [\d.]+ has no network 'resnet19' \(did you mean 'resnet18'\?\)$"):
        network("timm/resnet19", 3)


@pytest.mark.slow
def test_two_runs_at_a_time(photos, tmp_path):
    options = {**SMALL, "seeds": 1, "jobs": 2}
    _, result = compare_folder(photos, out=tmp_path, changes=QUICK, note=lambda words: None, **options)
    assert len(result.study.trained) == 2


@pytest.mark.slow
def test_words(tmp_path):
    source = Path(real_folder("speech_commands_v1")) / "speech_commands_v0.01"
    for name in ("yes", "no"):
        (tmp_path / "words" / name).mkdir(parents=True)
        for path in sorted((source / name).glob("*.wav"))[:6]:
            os.symlink(path, tmp_path / "words" / name / path.name)
    _, result = compare_folder(tmp_path / "words", out=tmp_path / "out", **{**SMALL, "seeds": 1})
    assert result.setup.kind == "sounds"
    assert result.splits["train"].pixels.shape[1:] == (1, 161, 101)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--budget", "soon"], "budget must be a time"),
        (["--seeds", "0"], "seeds and jobs must be at least 1"),
        (["--methods", "none"], "methods must name a method besides none"),
        (["--methods", "sagemix"], "sagemix is for clouds of points, and folder has images"),
        (["--ks", "0"], "ks must be positive integers, got 0"),
        (["--epochs", "3"], "epochs follows from the folder and the budget"),
        (["--methods", "cutmux"], "no method 'cutmux' (did you mean 'cutmix'?)"),
        (["--model", "resnet19"], "no network 'resnet19'"),
        (["--model", "nowhere:Net"], "cannot import the network 'nowhere:Net'"),
        (["--data.side", "4"], "data.side must be at least 8 pixels, got 4"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(tmp_path, capsys, words, sentence):
    for name in ("a", "b"):
        pictures(tmp_path / "set" / name, 3)
    assert cli.main(["compare", str(tmp_path / "set"), "--out", str(tmp_path / "out"), *words]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert sentence in last
    assert "Traceback" not in last


def test_no_seed_is_begun_that_would_end_too_late(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(run, "train_runs", lambda runs, **how: now.__setitem__(0, now[0] + 40) or [])
    options = Request(None, ("cutmix",), (1,), 5, 100.0, 1, {})
    setup, plan = SimpleNamespace(changes={}, folder=tmp_path), Plan(budget.Division(2, None, 50.0), {}, {})
    messages = run._train([], setup, options, plan, tmp_path, 0.0, lambda words: None)
    assert now[0] == 80  # a third would end after 120 seconds
    assert messages == ["the budget was spent after 2 seeds of 5: runs took longer than planned"]


def test_no_folder(tmp_path, capsys):
    assert cli.main(["compare", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'nowhere'} must be a folder, it does not exist\n"


class Pairs(torch.utils.data.Dataset):
    classes = ("a/b", "c")

    def __init__(self, kind, first=0):
        self.kind, self.first = kind, first

    def __len__(self):
        return 6

    def __getitem__(self, i):
        pixels = torch.from_numpy(numpy.random.default_rng(self.first + i).integers(0, 256, (3, 9, 7), dtype=numpy.uint8))
        picture = {"uint8": pixels, "float": pixels / 255, "pillow": Image.fromarray(pixels.permute(1, 2, 0).numpy())}[self.kind]
        return picture, torch.tensor(i % 2)


@pytest.mark.parametrize("kind", ["uint8", "float", "pillow"])
def test_a_data_set_of_torch_becomes_the_same_pixels(tmp_path, kind):
    folder = write_folder(Pairs(kind), None, tmp_path / "set")
    result = sorted(folder.rglob("*.png"))
    assert {path.parent.name for path in result} == {"a_b", "c"}
    for path in result:
        i = int(path.stem) - 1
        assert numpy.array_equal(numpy.array(Image.open(path)), Pairs("uint8")[i][0].permute(1, 2, 0).numpy())
        assert path.parent.name == ("a_b", "c")[i % 2]
    assert write_folder(Pairs(kind), None, tmp_path / "set") == folder


def test_a_data_set_of_hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    pixels = [numpy.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=numpy.uint8) for i in range(6)]
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    made = {"img": [Image.fromarray(one) for one in pixels], "label": [0, 1, 0, 1, 0, 1]}
    whole = datasets.Dataset.from_dict(made, features=features)
    parts = datasets.DatasetDict({"train": whole, "validation": whole.select(range(2))})
    folder = write_folder(parts, None, tmp_path / "set")
    assert {path.parent.name for path in (folder / "train").rglob("*.png")} == {"cat", "dog"}
    assert len(list((folder / "test").rglob("*.png"))) == 2
    assert numpy.array_equal(numpy.array(Image.open(folder / "train" / "dog" / "0000002.png")), pixels[1])


@pytest.mark.parametrize(
    ("sample", "sentence"),
    [
        (
            (torch.randn(3, 4, 4) * 3, 0),
            r"^sample 0 of train must be uint8 or in \[0, 1\], .*normalization$",
        ),
        ((torch.zeros(5, 6, 7), 0), r"^sample 0 of train must have .* channels, got shape \[5, 6, 7\]$"),
        ((torch.zeros(3, 4, 4), torch.zeros(2)), r"^the class of sample 0 of train must be .*, got an array"),
        ((torch.zeros(3, 4, 4), -1), r"^the class of sample 0 of train must be .*, got -1$"),
        ((torch.zeros(3, 4, 4),), r"^sample 0 of train must be an image and its class"),
        ({"image": torch.zeros(3, 4, 4)}, r"^sample 0 of train must have .* label .*, got the keys image$"),
        (("words", 0), r"^sample 0 of train must be an image .*, got str$"),
    ],
)
def test_samples_that_are_no_pictures(tmp_path, sample, sentence):
    with pytest.raises(ValueError, match=sentence):
        write_folder([sample], None, tmp_path / "set")


@pytest.mark.slow
def test_the_python_of_the_page_on_own_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[4] / "docs" / "own-data.md").read_text()
    names = {"train_set": Pairs("float"), "test_set": Pairs("uint8", 100)}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "own-data.md", "exec"), names)
    result = names["found"]
    assert result.splits["train"].classes == ("a_b", "c")
    assert (len(result.splits["train"]), len(result.splits["test"])) == (6, 6)
    assert result.answer.headline in capsys.readouterr().out


def test_the_recipe_trains_and_evaluates_a_folder(photos, tmp_path, capsys):
    words = ["train", "folder", "--data", str(photos), "--scale", "smoke", "--method", "none", "--out", str(tmp_path)]
    assert cli.main([*words, "--epochs", "1"]) == 0
    assert cli.main(["evaluate", str(tmp_path), "--data", str(photos)]) == 0
    (row,) = read_rows(tmp_path / "results.jsonl")
    assert json.loads((tmp_path / row["folder"] / "settings.json").read_text())["classes"] == sorted(
        ["rot & weiß", "grün <b>", "blau"]
    )
    assert row["report_samples"] == len(read_folder(photos, side=32, most=5, skip_bad=True)["test"])
