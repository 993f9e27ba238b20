import os
from pathlib import Path

import pytest
import torch

from multimix.lab.data.base import BadFile, Files
from multimix.lab.data.bulk import Form, gathered, outcomes, sentences, without_bad

FORM = Form("toy", (1, 2, 3), torch.float32)


def read(path):
    text = Path(path).read_text()
    if text == "bad":
        raise BadFile(f"{path} is bad")
    return torch.full(FORM.shape, float(text))


@pytest.fixture
def files(tmp_path):
    """Six files, the second and the last are bad."""
    paths = []
    for i, text in enumerate(["0", "bad", "2", "3", "4", "bad"]):
        (tmp_path / f"{i}").write_text(text)
        paths.append(str(tmp_path / f"{i}"))
    return Files(tuple(paths), torch.tensor([0, 1, 2, 0, 1, 2]), ("a", "b", "c"), read, skipped=("earlier",))


@pytest.mark.parametrize("workers", [0, 2])
def test_outcomes_come_in_order_and_bad_files_are_among_them(files, workers):
    found = list(outcomes(read, files.paths, workers))
    assert [str(item) if isinstance(item, BadFile) else float(item[0, 0, 0]) for item in found] == [
        0.0, f"{files.paths[1]} is bad", 2.0, 3.0, 4.0, f"{files.paths[5]} is bad",
    ]  # fmt: skip
    assert [item is None for item in sentences(read, files.paths, workers)] == [True, False, True, True, True, False]


def test_bad_files_are_left_out_and_named(files):
    left = without_bad(files)
    assert left.paths == tuple(files.paths[i] for i in (0, 2, 3, 4))
    assert left.labels.tolist() == [0, 2, 0, 1]
    assert left.skipped == ("earlier", f"{files.paths[1]} is bad", f"{files.paths[5]} is bad")
    with pytest.raises(BadFile, match="^none of the files can be read; .*5 is bad$"):
        without_bad(files.take(torch.tensor([5, 1])))


class Load:
    """Counts how often the work is done."""

    def __init__(self):
        self.calls = 0

    def __call__(self, paths):
        self.calls += 1
        return outcomes(read, paths)


@pytest.mark.parametrize("cached", [False, True])
def test_samples_are_gathered_without_the_bad_ones(files, tmp_path, cached):
    cache = tmp_path / "cache" if cached else None
    for _ in range(2):
        images = gathered(files, Load(), FORM, cache=cache, skip_bad=True)
        assert images.pixels.shape == (4, 1, 2, 3)
        assert images.pixels[:, 0, 1, 2].tolist() == [0, 2, 3, 4]
        assert images.labels.tolist() == [0, 2, 0, 1]
        assert images.skipped == ("earlier", f"{files.paths[1]} is bad", f"{files.paths[5]} is bad")
        with pytest.raises(BadFile, match="1 is bad$"):
            gathered(files, Load(), FORM, cache=cache, skip_bad=False)


def test_the_work_is_done_once_and_again_when_a_file_or_the_form_changes(files, tmp_path):
    load, good, cache = Load(), files.take(torch.tensor([0, 2, 3])), tmp_path / "cache"
    for _ in range(3):
        images = gathered(good, load, FORM, cache=cache, skip_bad=False)
    assert load.calls == 1
    assert images.pixels[:, 0, 0, 0].tolist() == [0, 2, 3]
    images.pixels[0] = 7  # a copy: the next reader sees the file
    assert gathered(good, load, FORM, cache=cache, skip_bad=False).pixels[0, 0, 0, 0] == 0
    Path(good.paths[1]).write_text("9")
    os.utime(good.paths[1], ns=(1, 1))
    assert gathered(good, load, FORM, cache=cache, skip_bad=False).pixels[:, 0, 0, 0].tolist() == [0, 9, 3]
    assert load.calls == 2
    gathered(good, load, Form("other", FORM.shape, FORM.dtype), cache=cache, skip_bad=False)
    assert load.calls == 3


@pytest.mark.parametrize("spoil", ["truncate", "no note", "bad note"])
def test_an_array_that_its_note_does_not_vouch_for_is_made_again(files, tmp_path, spoil):
    load, good, cache = Load(), files.take(torch.tensor([0, 2, 3])), tmp_path / "cache"
    gathered(good, load, FORM, cache=cache, skip_bad=False)
    (array,), (note,) = cache.glob("*.array"), cache.glob("*.json")
    if spoil == "truncate":
        array.write_bytes(array.read_bytes()[:-1])
    elif spoil == "no note":
        note.unlink()
    else:
        note.write_text('{"bytes"')
    assert gathered(good, load, FORM, cache=cache, skip_bad=False).pixels[:, 0, 0, 0].tolist() == [0, 2, 3]
    assert load.calls == 2
    assert sorted(path.suffix for path in cache.iterdir()) == [".array", ".json"]


def test_work_that_breaks_off_leaves_no_array(files, tmp_path):
    def broken(paths):
        yield torch.zeros(FORM.shape)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="^cannot write .*toy-.*array': No space left on device$"):
        gathered(files, broken, FORM, cache=tmp_path / "cache", skip_bad=False)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_is_a_file_is_one_sentence(files, tmp_path):
    with pytest.raises(ValueError, match="must be a folder, .*0' is a file"):
        gathered(files, Load(), FORM, cache=tmp_path / "0", skip_bad=True)
