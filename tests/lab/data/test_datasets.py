import pickle
from itertools import pairwise

import pytest
import torch

from multimix.lab.data import DATASETS, BadFile, Files, Images, Splits, dataset, read
from multimix.lab.data.reading import find_folder, text_lines


def images(counts=(5, 3, 4)):
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    return Images(torch.arange(len(labels), dtype=torch.uint8).reshape(-1, 1, 1, 1).repeat(1, 2, 3, 5), labels, ("a", "b", "c"))


def number(path):
    return torch.full((3, 2, int(path)), int(path), dtype=torch.uint8)


def test_a_batch_has_the_samples_asked_for_in_that_order():
    split = images()
    x, y = split.batch(torch.tensor([7, 0, 7]))
    assert x.dtype == torch.uint8
    assert x.shape == (3, 2, 3, 5)
    assert x[:, 0, 0, 0].tolist() == [7, 0, 7]
    assert torch.equal(y, split.labels[[7, 0, 7]])
    assert len(split) == 12


def test_files_of_one_size_are_a_tensor_and_of_several_a_list():
    files = Files(("4", "6", "4"), torch.tensor([0, 1, 0]), ("a", "b"), number)
    x, y = files.batch(torch.tensor([2, 0]))
    assert isinstance(x, torch.Tensor)
    assert x.shape == (2, 3, 2, 4)
    x, y = files.batch(torch.tensor([1, 0]))
    assert [tuple(image.shape) for image in x] == [(3, 2, 6), (3, 2, 4)]
    assert y.tolist() == [1, 0]


def test_a_subset_is_balanced_keyed_by_the_seed_and_in_order():
    split = images()
    chosen = split.subset(3, seed=0)
    assert torch.bincount(chosen.labels).tolist() == [3, 3, 3]
    numbers = chosen.pixels[:, 0, 0, 0].tolist()
    assert numbers == sorted(numbers)
    assert torch.equal(chosen.labels, split.labels[numbers])
    assert numbers == split.subset(3, seed=0).pixels[:, 0, 0, 0].tolist()
    others = {tuple(split.subset(2, seed=seed).pixels[:, 0, 0, 0].tolist()) for seed in range(20)}
    assert len(others) > 10


def test_every_sample_of_a_class_is_equally_likely_in_a_subset():
    split, counts = images((4, 2)), torch.zeros(6)
    for seed in range(600):
        counts[split.subset(1, seed).pixels[:, 0, 0, 0].long()] += 1
    expected = torch.tensor([150.0, 300.0])[split.labels]
    assert ((counts - expected).abs() < 5 * expected.sqrt()).all()


def test_a_subset_of_files_keeps_boxes_beside_their_paths():
    boxes = tuple(torch.full((1, 4), float(i)) for i in range(4))
    files = Files(("1", "2", "3", "4"), torch.tensor([0, 1, 0, 1]), ("a", "b", "empty"), number, boxes)
    for seed in range(10):
        chosen = files.subset(1, seed)
        assert [int(path) - 1 for path in chosen.paths] == [int(box[0, 0]) for box in chosen.boxes]
        assert sorted(chosen.labels.tolist()) == [0, 1]


@pytest.mark.parametrize("per_class", [0, 4])
def test_a_subset_larger_than_the_smallest_class_is_refused(per_class):
    with pytest.raises(ValueError, match=f"per_class must lie in 1 … 3, the size of the smallest class, got {per_class}$"):
        images().subset(per_class, 0)


def test_what_does_not_fit_together_is_refused():
    x = torch.zeros(2, 1, 2, 2, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"labels must be int64 \[2\], one per sample, got torch.int64 \[3\]"):
        Images(x, torch.zeros(3, dtype=torch.int64), ("a",))
    with pytest.raises(ValueError, match="labels must lie in 0 … 0, got 0 … 1"):
        Images(x, torch.tensor([0, 1]), ("a",))
    with pytest.raises(ValueError, match=r"pixels must be uint8 or float32 \[N, C, H, W\], got torch.int64 \[2\]"):
        Images(torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), ("a",))
    with pytest.raises(ValueError, match="boxes must be one tensor per path, got 1 for 2"):
        Files(("1", "2"), torch.zeros(2, dtype=torch.int64), ("a",), number, (torch.zeros(1, 4),))


def test_a_part_that_is_not_there_is_named():
    splits = Splits("toy", {"train": images()})
    assert len(splits["train"]) == 12
    assert "train" in splits
    assert "test" not in splits
    with pytest.raises(ValueError, match="^toy has no part 'validation' here; it has train$"):
        _ = splits["validation"]


def test_a_set_is_found_in_the_data_folder_and_in_its_own(tmp_path):
    base = tmp_path / "official"
    base.mkdir()
    with pytest.raises(BadFile, match="must be or hold a folder official with list.txt in it, it has none$"):
        find_folder(tmp_path, ("official",), ("list.txt",))
    (base / "list.txt").write_text("a\n\n b \n")
    assert find_folder(tmp_path, ("other", "official"), ("no", "list.txt")) == base
    assert find_folder(str(base), ("official",), ("list.txt",)) == base
    assert text_lines(base / "list.txt") == ["a", " b "]
    with pytest.raises(BadFile, match="it does not exist$"):
        find_folder(tmp_path / "nowhere", ("official",), ("list.txt",))
    with pytest.raises(BadFile, match="none.txt is missing$"):
        text_lines(base / "none.txt")
    (base / "list.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(BadFile, match="list.txt must be a text file"):
        text_lines(base / "list.txt")


def test_the_sentence_survives_the_way_between_processes():
    assert str(pickle.loads(pickle.dumps(BadFile("a.jpg is not an image")))) == "a.jpg is not an image"


def test_a_set_is_read_by_name_with_its_own_options(tmp_path, write):
    write.cifar100(tmp_path)
    assert len(read("cifar100", tmp_path)["train"].classes) == 100
    assert len(read("cifar100", tmp_path, labels="coarse")["test"].classes) == 20


def test_unknown_names_and_options_suggest_the_nearest(tmp_path):
    with pytest.raises(
        ValueError, match=r"^no data set 'cifar-100' \(did you mean 'cifar100'\?\); there are cifar10, cifar100, "
    ):
        read("cifar-100", tmp_path)
    with pytest.raises(ValueError, match=r"^cifar10 has no option 'skip_bat' \(did you mean 'skip_bad'\?\); it has skip_bad$"):
        read("cifar10", tmp_path, skip_bat=True)
    with pytest.raises(ValueError, match=r"^digits has no option 'cache'; it has none$"):
        read("digits", tmp_path, cache=tmp_path)


def test_the_table_is_consistent():
    for name, entry in DATASETS.items():
        assert entry is dataset(name)
        assert name == entry.name
        channels = entry.size[0] if entry.layout == "images" else 0  # clouds are not normalised
        assert len(entry.mean) == len(entry.std) == channels
    assert DATASETS["cifar100"].mean[0] * 255 == pytest.approx(129.3)
    assert DATASETS["cifar10"].std[2] * 255 == pytest.approx(66.7)
    # 64,727 files in the archive, six of them background noise.
    assert sum(DATASETS["speech_commands_v1"].counts.values()) == 64_727 - 6


def test_what_can_be_fetched_can_be_read_from_where_it_is_put():
    for name, entry in DATASETS.items():
        assert {source.folder for source in entry.sources} <= set(entry.folders), name
        assert bool(entry.sources) != bool(entry.not_fetched)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 100, 127, 128, 5000])
def test_probed_samples_are_spread_over_all(count):
    rows = (
        Images(torch.zeros(count, 1, 2, 2, dtype=torch.uint8), torch.zeros(count, dtype=torch.int64), ("a",))._spread().tolist()
    )
    assert len(set(rows)) == len(rows) == min(count, 64)
    gaps = [b - a for a, b in pairwise([*rows, count])]
    assert not rows or rows[0] == 0
    assert not gaps or max(gaps) - min(gaps) <= 1
