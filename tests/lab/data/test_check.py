import pytest

from multimix.lab.data import DATASETS, BadFile
from multimix.lab.data.check import check
from multimix.lab.data.reading import PICTURE_FORMATS


def states(folder, **options):
    return {found.name: found for found in check(folder, **options) if found.state != "absent"}


@pytest.fixture
def everything(tmp_path, write):
    write.cifar10(tmp_path)
    write.cifar100(tmp_path)
    write.tiny(tmp_path)
    write.tree(tmp_path / "imagenet")
    write.cub(tmp_path)
    write.speech(tmp_path)
    return tmp_path


def test_sound_parts_are_partial_and_counted_against_the_official_numbers(everything):
    found = states(everything)
    assert set(found) == set(DATASETS) - {"digits", "shapes", "speech_commands_v2", "folder", "sound_folder"}
    assert {entry.state for entry in found.values()} == {"partial"}
    assert found["cub200"].lines == (
        "2 of 200 classes; 3 of 5,994 train, 2 of 5,794 test",
        "train: 1 … 2 in a class",
        "test: 1 in a class",
    )
    assert found["speech_commands_v1"].lines[0] == "2 of 30 classes; 3 of 51,088 train, 1 of 6,798 validation, 2 of 6,835 test"
    assert found["imagenet"].lines[0] == "3 of 1000 classes; 12 of 1,281,167 train, 12 of 50,000 validation"


def test_a_complete_set_is_called_complete(tmp_path, write, monkeypatch):
    write.tiny(tmp_path)
    monkeypatch.setitem(DATASETS["tiny_imagenet"].counts, "train", 6)
    monkeypatch.setitem(DATASETS["tiny_imagenet"].counts, "validation", 3)
    assert states(tmp_path)["tiny_imagenet"].state == "complete"


def test_absent_sets_say_what_was_looked_for(tmp_path):
    found = {entry.name: entry for entry in check(tmp_path)}
    assert {entry.state for entry in found.values()} == {"absent"}
    assert found["cub200"].lines == ("no folder CUB_200_2011",)
    assert "digits" not in found


def test_an_empty_folder_of_a_set_is_wrong(tmp_path):
    (tmp_path / "CUB_200_2011").mkdir()
    assert states(tmp_path)["cub200"].state == "wrong"
    assert states(tmp_path)["cub200"].lines[0].endswith("CUB_200_2011 with images.txt in it, it has none")


def test_the_folder_of_one_set_can_be_checked_alone(tmp_path, write):
    assert list(states(write.cub(tmp_path))) == ["cub200"]
    assert list(states(write.tiny(tmp_path))) == ["tiny_imagenet"]


@pytest.mark.parametrize("workers", [0, 2])
def test_headers_show_some_damage_and_decoding_shows_all(everything, workers):
    junk, cut = everything / "CUB_200_2011/images/001.Auk/a.jpg", everything / "CUB_200_2011/images/002.Owl/e.jpg"
    junk.write_bytes(b"junk")
    cut.write_bytes(cut.read_bytes()[:650])
    (everything / "cifar-10-batches-py/data_batch_3").unlink()
    (everything / "speech_commands_v0.01/up/0_nohash_0.wav").write_bytes(b"RIFF")
    shallow = states(everything, workers=workers)
    assert shallow["cub200"].state == "wrong"
    assert shallow["cub200"].lines[3:] == (f"{junk} is not an image in {', '.join(PICTURE_FORMATS)}",)
    assert shallow["cifar10"].lines[0].endswith("data_batch_3 is missing")
    assert "up/0_nohash_0.wav is no WAV file" in shallow["speech_commands_v1"].lines[-1]
    assert shallow["tiny_imagenet"].state == "partial"
    deep = states(everything, deep=True, workers=workers)
    assert len(deep["cub200"].lines) == 5
    assert deep["cub200"].lines[4].startswith(f"{cut} is an image that cannot be decoded")


def test_many_bad_files_are_counted(tmp_path, write):
    base = write.tree(tmp_path / "imagenet")
    for path in (base / "train").rglob("*.jpg"):
        path.write_bytes(b"junk")
    lines = states(tmp_path)["imagenet"].lines
    assert sum("is not an image" in line for line in lines) == 5
    assert lines[-1] == "7 more bad files like these"


def test_other_bytes_than_the_official_ones_show_in_the_checksum_of_a_complete_set(tmp_path, write, monkeypatch):
    write.cifar100(tmp_path)
    assert states(tmp_path, deep=True)["cifar100"].state == "partial"
    monkeypatch.setitem(DATASETS["cifar100"].counts, "train", 6)
    monkeypatch.setitem(DATASETS["cifar100"].counts, "test", 6)
    assert states(tmp_path)["cifar100"].state == "complete"
    found = states(tmp_path, deep=True)["cifar100"]
    assert found.state == "wrong"
    assert "train differs from the official file: md5" in found.lines[-2]
    assert found.lines[-1].endswith("not f0ef6b0ae62326f3e7ffdfab6717acfc")


def test_progress_counts_files(tmp_path, write):
    write.cub(tmp_path)
    seen = []
    check(tmp_path, progress=lambda *values: seen.append(values))
    assert seen == [(i, 5) for i in range(1, 6)]


def test_no_folder_is_one_sentence(tmp_path):
    with pytest.raises(BadFile, match="none must be a folder, it does not exist$"):
        check(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadFile, match="file must be a folder, it is a file$"):
        check(tmp_path / "file")
