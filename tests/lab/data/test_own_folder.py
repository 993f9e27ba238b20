"""Folders as people have them: what is found in each layout, what is left out and said, and what is refused in one sentence."""

import os
import shutil
from collections import Counter
from pathlib import Path
from zlib import crc32

import numpy
import pytest
import torch
from PIL import Image

from multimix.lab.data import read
from multimix.lab.data.own_folder import read_folder
from multimix.lab.data.own_layout import kind_of, list_folder
from multimix.lab.data.reading import BadFile
from multimix.lab.recipes import recipe
from multimix.lab.recipes.serialise import apply_changes, describe, rebuild
from multimix.lab.recipes.settings import Data, Settings
from real_data import real_folder


def pictures(folder, count=3):
    """``count`` pictures, no two alike anywhere."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        pixels = numpy.random.default_rng([crc32(os.fsencode(folder.name)), crc32(os.fsencode(folder.parent.name)), i]).integers(
            0, 256, (9, 12, 3), dtype=numpy.uint8
        )
        Image.fromarray(pixels).save(folder / f"{i}.png")


def counts(splits):
    names = {part: [split.classes[label] for label in split.labels.tolist()] for part, split in splits.parts.items()}
    return {part: dict(Counter(own)) for part, own in names.items()}


def digests(split):
    return {row.numpy().tobytes() for row in split.pixels}


def test_two_parts(tmp_path):
    for part, count in (("train", 3), ("test", 2)):
        for name in ("cat", "dog"):
            pictures(tmp_path / part / name, count)
    found = read_folder(tmp_path, side=16)
    assert counts(found) == {"train": {"cat": 3, "dog": 3}, "test": {"cat": 2, "dog": 2}}
    assert found["train"].pixels.shape == (6, 3, 16, 16)
    assert not found.divided


@pytest.mark.parametrize("count", [2, 5, 11, 50])
def test_one_folder_is_divided_class_by_class(tmp_path, count):
    pictures(tmp_path / "a", count)
    pictures(tmp_path / "b", 7)
    found = read_folder(tmp_path, side=8, seed=3)
    tested = max(1, round(count / 5))
    assert counts(found) == {"train": {"a": count - tested, "b": 6}, "test": {"a": tested, "b": 1}}
    assert not digests(found["train"]) & digests(found["test"])
    assert len(digests(found["train"]) | digests(found["test"])) == count + 7
    again, other = read_folder(tmp_path, side=8, seed=3), read_folder(tmp_path, side=8, seed=4)
    assert torch.equal(found["test"].pixels, again["test"].pixels)
    if count > 2:
        assert digests(found["test"]) != digests(other["test"])


def test_every_picture_is_tested_on_as_often_as_any_other(tmp_path):
    pictures(tmp_path / "a", 5)
    pictures(tmp_path / "b", 5)
    seen = Counter(digest for seed in range(400) for digest in digests(read_folder(tmp_path, side=8, seed=seed)["test"]))
    assert len(seen) == 10
    assert all(abs(times - 80) < 5 * (400 * 0.2 * 0.8) ** 0.5 for times in seen.values())


@pytest.mark.parametrize(
    ("paths", "classes"),
    [
        (["a/1.PNG", "a/2.JPeG", "b/1.png", "b/2.png"], ("a", "b")),
        (["a/x/y/1.png", "a/2.png", "b/z/1.png", "b/2.png"], ("a", "b")),
        (["data/my set/a/1.png", "data/my set/a/2.png", "data/my set/b/1.png", "data/my set/b/2.png"], ("a", "b")),
        (["train/a/images/1.JPEG", "train/a/images/2.JPEG", "train/b/images/1.JPEG", "val/images/9.JPEG"], ("a", "b")),
        (["train/1.png", "train/2.png", "bus/1.png", "bus/2.png"], ("bus", "train")),
        (["train/fast/1.png", "train/slow/2.png", "bus/1.png", "bus/2.png"], ("bus", "train")),
        (["été/1.png", "été/2.png", "猫/1.png", "猫/2.png"], ("été", "猫")),
        (["Training/a/1.png", "Training/b/1.png", "VALID/a/2.png", "VALID/b/2.png"], ("a", "b")),
        (["images/a/1.png", "images/a/2.png", "images/b/1.png", "images/b/2.png", "lists/notes.txt"], ("a", "b")),
    ],
)
def test_layouts(tmp_path, write, paths, classes):
    for seed, path in enumerate(paths):
        if path.endswith("txt"):
            (tmp_path / path).parent.mkdir()
            (tmp_path / path).write_text("x")
        else:
            write.picture(tmp_path / path, 9, 12, seed, format="png")
    found = read_folder(tmp_path, side=8)
    assert found["train"].classes == classes
    part = Path(paths[0]).parts[0].lower()
    wanted = [path for path in paths if not path.endswith("txt") and "val/" not in path]
    assert sum(map(len, found.parts.values())) == len(wanted)
    if part == "training":
        assert not found.divided


def test_both_ways_of_writing_an_accent_are_one_class(tmp_path):
    pictures(tmp_path / "train" / "e\u0301te\u0301")
    pictures(tmp_path / "train" / "b")
    pictures(tmp_path / "test" / "\u00e9t\u00e9")
    assert counts(read_folder(tmp_path, side=8))["test"] == {"\u00e9t\u00e9": 3}


def test_names_that_are_no_utf8(tmp_path):
    place = os.fsencode(tmp_path / "a") + b"\xe9"
    try:
        os.mkdir(place)
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    pictures(Path(os.fsdecode(place)))
    pictures(tmp_path / "b")
    found = read_folder(tmp_path, side=8, cache=tmp_path / ".cache")
    assert found["train"].classes == ("a?", "b")


def test_links_are_followed_but_not_in_circles(tmp_path):
    pictures(tmp_path / "elsewhere" / "a")
    (tmp_path / "set").mkdir()
    os.symlink(tmp_path / "elsewhere" / "a", tmp_path / "set" / "a")
    pictures(tmp_path / "set" / "b")
    os.symlink(tmp_path / "set", tmp_path / "set" / "b" / "circle")
    os.symlink("nowhere.png", tmp_path / "set" / "b" / "gone.png")
    found = read_folder(tmp_path / "set", side=8, skip_bad=True)
    assert {part: len(split) for part, split in found.parts.items()} == {"train": 4, "test": 2}
    assert found["train"].skipped == (f"{tmp_path / 'set' / 'b' / 'gone.png'} is missing",)


def test_what_systems_leave_behind_is_passed_over(tmp_path):
    for name in ("a", "b"):
        pictures(tmp_path / name)
        for junk in (".DS_Store", "Thumbs.db", "._1.png"):
            (tmp_path / name / junk).write_bytes(b"x")
    (tmp_path / "__MACOSX" / "a").mkdir(parents=True)
    (tmp_path / "__MACOSX" / "a" / "1.png").write_bytes(b"x")
    (tmp_path / "readme.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    pictures(tmp_path, 1)
    pictures(tmp_path / "multimix-compare" / "photos" / "figures")
    (tmp_path / "multimix-compare" / "photos" / "compare.json").write_text("{}")
    found = list_folder(tmp_path)
    assert found.classes == ("a", "b")
    assert found.notes == (
        "1 of the pictures outside the folders of the classes: passed over",
        "no pictures in 2 of the folders, which are no classes then: empty, multimix-compare",
        "1 of the files with other endings: passed over (readme.txt)",
    )


def test_broken_files_are_named_and_left_out_or_refused(tmp_path):
    pictures(tmp_path / "a")
    pictures(tmp_path / "b")
    (tmp_path / "a" / "broken.jpg").write_bytes(b"no picture")
    (tmp_path / "b" / "short.png").write_bytes((tmp_path / "b" / "0.png").read_bytes()[:150])
    found = read_folder(tmp_path, side=8, skip_bad=True)
    assert sum(map(len, found.parts.values())) == 6
    assert [words.partition(" is ")[0] for words in found["train"].skipped] == [
        str(tmp_path / "a" / "broken.jpg"),
        str(tmp_path / "b" / "short.png"),
    ]
    with pytest.raises(BadFile, match=r"broken\.jpg is not an image"):
        read_folder(tmp_path, side=8)


def test_copies_between_the_parts_are_left_out_of_train(tmp_path):
    for part in ("train", "test"):
        pictures(tmp_path / part / "a")
        pictures(tmp_path / part / "b")
    shutil.copy(tmp_path / "train" / "a" / "0.png", tmp_path / "test" / "b" / "copy.png")
    Image.open(tmp_path / "train" / "b" / "1.png").save(tmp_path / "test" / "b" / "copy.bmp")  # the same pixels in other bytes
    found = read_folder(tmp_path, side=8)
    assert counts(found) == {"train": {"a": 2, "b": 2}, "test": {"a": 3, "b": 5}}
    assert found.notes[0].startswith("2 of the samples in train/ are in test/ as well")


def test_copies_in_one_folder_are_left_out(tmp_path):
    pictures(tmp_path / "a", 5)
    pictures(tmp_path / "b", 5)
    shutil.copy(tmp_path / "a" / "0.png", tmp_path / "a" / "again.png")
    shutil.copy(tmp_path / "a" / "1.png", tmp_path / "b" / "also.png")
    found = read_folder(tmp_path, side=8)
    assert sum(map(len, found.parts.values())) == 10
    assert found.notes[0] == (
        "2 samples, copies of others bit for bit after decoding, were left out "
        "(1 of them of another class than the one that is kept)"
    )


def test_classes_that_only_one_part_has(tmp_path):
    for part, names in (("train", "ab"), ("test", "bc")):
        for name in names:
            pictures(tmp_path / part / name)
    found = read_folder(tmp_path, side=8)
    assert counts(found) == {"train": {"a": 3, "b": 3}, "test": {"b": 3}}
    assert found.notes[0] == "1 of the classes in test/ not in train/, so that nothing of them is learnt: left out (c)"
    assert found.notes[-1] == "1 of 2 classes have no pictures to be tested on: a 0"


def test_at_most_so_many_of_a_class(tmp_path):
    for part in ("train", "test"):
        pictures(tmp_path / part / "a", 9)
        pictures(tmp_path / part / "b", 3)
    found = read_folder(tmp_path, side=8, most=4)
    assert counts(found) == {"train": {"a": 4, "b": 3}, "test": {"a": 9, "b": 3}}
    assert digests(found["train"]) <= digests(read_folder(tmp_path, side=8)["train"])


def test_at_most_so_many_to_learn_from_of_a_folder_that_is_divided(tmp_path):
    pictures(tmp_path / "a", 130)
    pictures(tmp_path / "b", 20)
    pictures(tmp_path / "c", 1)
    found = read_folder(tmp_path, side=8, most=6)
    assert counts(found) == {"train": {"a": 6, "b": 6, "c": 1}, "test": {"a": 20, "b": 4}}
    assert counts(read_folder(tmp_path, side=8, most=24))["test"] == {"a": 24, "b": 4}
    assert not digests(found["train"]) & digests(found["test"])


@pytest.mark.parametrize(
    ("paths", "sentence"),
    [
        ([], r"must hold pictures \(\.jpeg, .*\) in one folder per class, it has none$"),
        (["a/1.heic", "b/1.heic"], r"in one folder per class, it has only \.heic$"),
        (["1.png", "2.png"], r"must have one folder per class, its 2 pictures are in none$"),
        (["a/1.png", "a/2.png"], r"must have at least two classes, which are folders with pictures; it has one, a$"),
        (["a/1.png", "b/1.png", "c/1.png"], r"classes with at least two different samples, .*; it has a 1, b 1, c 1$"),
        (["train/a/1.png", "train/b/1.png", "test/c/1.png", "test/d/1.png"], r"none of its 2 \(c, d\) is one of a, b$"),
        (
            ["val/a/1.png", "val/b/1.png", "test/a/2.png", "test/b/2.png"],
            r"must have a folder train beside test and val, it has none$",
        ),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path, write, paths, sentence):
    for seed, path in enumerate(paths):
        write.picture(tmp_path / path, 9, 9, seed, format="png")
    with pytest.raises(BadFile, match=sentence):
        read_folder(tmp_path, side=8)


def test_no_folder(tmp_path):
    with pytest.raises(BadFile, match=r"nowhere must be a folder, it does not exist$"):
        read_folder(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadFile, match=r"file must be a folder, it is a file$"):
        kind_of(tmp_path / "file")


def test_sounds(tmp_path, write):
    for name in ("yes", "no"):
        for seed in range(4):
            write.clip(tmp_path / name / f"{seed}.WAV", numpy.random.default_rng(seed + 10 * len(name)).integers(-99, 99, 8000))
    assert kind_of(tmp_path) == "sounds"
    found = read("sound_folder", tmp_path)
    assert found["train"].pixels.shape == (6, 1, 161, 101)


def test_side_and_most_are_for_folders():
    assert Data("folder", side=96).entry().size == (3, 96, 96)
    assert Data("folder").entry().size == (3, 64, 64)
    assert apply_changes(Data("folder"), {"side": "32", "most": "5"}) == Data("folder", side=32, most=5)
    with pytest.raises(ValueError, match=r"^data.side and data.most are for folder and sound_folder, not for cifar100$"):
        Data("cifar100", side=32).entry()
    with pytest.raises(ValueError, match="data.side must be at least 8 pixels, got 4"):
        read_folder(".", side=4)


def test_runs_of_before_keep_their_digest():
    settings = recipe("superclasses").settings("small")
    before = {name: value for name, value in describe(settings).items() if name not in ("data.side", "data.most")}
    assert rebuild(Settings, before) == settings
    assert settings.digest() != apply_changes(settings, {"data.side": "32"}).digest()


def test_real_layouts():
    birds = list_folder(Path(real_folder("cub200")) / "CUB_200_2011")
    assert birds.classes[0] == "001.Black_footed_Albatross"
    tiny = list_folder(Path(real_folder("tiny_imagenet")) / "tiny-imagenet-200")
    assert len(tiny.classes) == 200
    assert tiny.notes[0] == "val/ has no folders of the classes and was not used"
