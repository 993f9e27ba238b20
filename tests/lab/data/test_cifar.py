import os
import pickle
import struct

import numpy
import pytest
import torch

from multimix.lab.data import BadFile
from multimix.lab.data.cifar import read_cifar10, read_cifar100


def test_cifar10_is_read_batch_by_batch(tmp_path, write):
    _, found = write.cifar10(tmp_path)
    splits = read_cifar10(tmp_path)
    assert (len(splits["train"]), len(splits["test"])) == (20, 4)
    expected = numpy.concatenate([data for data, _ in found[:5]])
    for i, row in enumerate(expected):
        red, green, blue = row[:1024], row[1024:2048], row[2048:]
        assert splits["train"].pixels[i, 0].flatten().tolist() == red.tolist()
        assert splits["train"].pixels[i, 1, 2].tolist() == green[64:96].tolist()
        assert splits["train"].pixels[i, 2, :, 31].tolist() == blue[31::32].tolist()
    assert splits["train"].labels.tolist() == [label for _, labels in found[:5] for label in labels]
    assert splits["test"].labels.tolist() == found[5][1]
    assert splits["train"].classes == tuple(f"class {i}" for i in range(10))
    assert splits["train"].skipped == ()


@pytest.mark.parametrize(("labels", "classes"), [("fine", 100), ("coarse", 20)])
def test_cifar100_has_fine_and_coarse_labels(tmp_path, write, labels, classes):
    base, found = write.cifar100(tmp_path)
    splits = read_cifar100(base, labels=labels)
    for part in ("train", "test"):
        data, expected = found[part]
        assert splits[part].pixels.flatten().tolist() == data.flatten().tolist()
        assert splits[part].labels.tolist() == expected[labels]
        assert splits[part].classes == tuple(f"{labels} {i}" for i in range(classes))
    with pytest.raises(ValueError, match="labels must be 'fine' or 'coarse', got 'super'"):
        read_cifar100(base, labels="super")


@pytest.mark.parametrize("protocol", [3, 4])
def test_files_saved_again_by_python_3_are_read_too(tmp_path, write, protocol):
    base, found = write.cifar100(tmp_path)
    data, labels = found["train"]
    content = {"data": data, "fine_labels": labels["fine"], "coarse_labels": labels["coarse"]}
    (base / "train").write_bytes(pickle.dumps(content, protocol=protocol))
    assert read_cifar100(base)["train"].pixels.flatten().tolist() == data.flatten().tolist()


def test_a_truncated_pickle_is_named_wherever_it_ends(tmp_path, write):
    base, _ = write.cifar100(tmp_path)
    whole = (base / "train").read_bytes()
    for end in [0, 1, 2, *range(3, 400, 7), len(whole) - 5, len(whole) - 1]:
        (base / "train").write_bytes(whole[:end])
        with pytest.raises(BadFile, match=r"^[^\n]*cifar-100-python/train is truncated or no pickle[^\n]*$"):
            read_cifar100(base)


def test_no_damage_of_a_byte_raises_anything_but_one_sentence(tmp_path, write):
    base, _ = write.cifar100(tmp_path, count=2)
    whole, generator = (base / "train").read_bytes(), numpy.random.default_rng(0)
    head = len(whole) - 2 * 3072
    for _ in range(300):
        spoiled = bytearray(whole)
        spoiled[generator.integers(head)] = generator.integers(256)
        (base / "train").write_bytes(bytes(spoiled))
        try:
            read_cifar100(base)
        except BadFile as bad:
            assert "\n" not in str(bad)  # noqa: PT017  what is not raised is a harmless change


def test_one_damaged_byte_cannot_ask_for_all_memory(tmp_path, write):
    # The place of a remembered value, four bytes; pickle in C makes a list of that length.
    base, _ = write.cifar100(tmp_path)
    whole = (base / "train").read_bytes()
    (base / "train").write_bytes(whole[:3] + b"r\xff\xff\xff\x7f" + whole[3:])
    with pytest.raises(BadFile, match="asks for more memory than the file can fill, which was not run$"):
        read_cifar100(base)


class Command:
    def __init__(self, call, *values):
        self.call, self.values = call, values

    def __reduce__(self):
        return self.call, self.values


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_something_is_refused_and_not_run(tmp_path, write, protocol):
    base, _ = write.cifar100(tmp_path)
    mark = tmp_path / "mark"
    for evil, name in ((Command(os.mkdir, str(mark)), "mkdir"), (Command(eval, f"open({str(mark)!r}, 'w')"), "eval")):
        (base / "train").write_bytes(pickle.dumps({"data": evil, "fine_labels": [0]}, protocol=protocol))
        with pytest.raises(BadFile, match=rf"train is no CIFAR file: its pickle asks for \w+\.{name}, which was not run$"):
            read_cifar100(base)
        assert not mark.exists()


@pytest.mark.parametrize(
    ("opcodes", "sentence"),
    [
        (b"cnumpy\nndarray\n)R.", "must hold a dictionary"),
        (b"cnumpy\ndtype\n}b.", "is truncated or no pickle"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(N}U\x0c__defaults__Nstb.", "is truncated or no pickle"),
        (b"}(U\x04datacnumpy.core.multiarray\n_reconstruct\n)R}bU\x0bfine_labels](K\x00eu.", "must hold an array of bytes, row"),
        (b"cnumpy.core.multiarray\nscalar\n)R.", "asks for numpy.core.multiarray.scalar, which was not run$"),
        (b"\x8c\x05numpy\x8c\x0endarray.tofile\x93.", "asks for numpy.ndarray.tofile, which was not run$"),
        (b"cos\nsystem\n.", "asks for os.system, which was not run$"),
    ],
)
def test_the_allowed_names_do_nothing_but_hold_bytes(tmp_path, write, opcodes, sentence):
    base, _ = write.cifar100(tmp_path)
    (base / "train").write_bytes(b"\x80\x04" + opcodes)
    with pytest.raises(BadFile, match=sentence):
        read_cifar100(base)


def test_an_array_of_objects_is_refused(tmp_path, write):
    # NumPy's own loader would take eight such bytes for the address of an object.
    base, _ = write.cifar100(tmp_path)
    (base / "train").write_bytes((base / "train").read_bytes().replace(b"U\x02u1", b"U\x02O8"))
    with pytest.raises(BadFile, match="must hold an array of bytes, row by row, it holds another$"):
        read_cifar100(base)


@pytest.mark.parametrize("content", [b"}" + b"N" + b"\x85" * 1_500_000 + b"Ns.", b"(" + b"(" * 200 + b"t" * 201 + b"."])
def test_tuples_inside_tuples_do_not_crash_the_interpreter(tmp_path, write, content):
    # As the key of a dictionary such a tuple is hashed, which would overflow the stack.
    base, _ = write.cifar100(tmp_path)
    (base / "train").write_bytes(b"\x80\x02" + content)
    with pytest.raises(BadFile, match="train is no CIFAR file: its pickle asks for many tuples, which was not run$"):
        read_cifar100(base)


NUMPY = b"cnumpy\nndarray\n"
DEEP = {
    "lists": (b"]" * 300_000 + b"a" * 299_999, "it holds list$"),
    "sets": (b"(" * 300_000 + b"\x91" * 300_000, "it holds frozenset$"),
    "objects": ((b"(" + NUMPY) * 300_000 + b"o" * 300_000, "it holds _StandIn$"),
    "states of objects": ((NUMPY + b")R") * 300_000 + b"b" * 299_999, "it holds _StandIn$"),
}


@pytest.mark.parametrize("kind", DEEP)
def test_other_things_inside_themselves_do_not_either(tmp_path, write, kind):
    base, _ = write.cifar100(tmp_path)
    opcodes, sentence = DEEP[kind]
    (base / "train").write_bytes(b"\x80\x04" + opcodes + b".")
    with pytest.raises(BadFile, match=sentence):
        read_cifar100(base)


def test_wrong_counts_and_labels_are_named(tmp_path, write):
    base, found = write.cifar100(tmp_path)
    data, labels = found["train"]

    def saved(**change):
        content = {b"data": data, b"fine_labels": labels["fine"]}
        content.update({key.encode(): value for key, value in change.items()})
        (base / "train").write_bytes(write.pickle2(content))

    saved(fine_labels=[1, 2])
    with pytest.raises(
        BadFile, match=r"3,072 bytes for each of its 2 labels, it holds 18,432 bytes as an array of shape \[6, 3072\]"
    ):
        read_cifar100(base)
    saved(fine_labels=[0, 1, 2, 3, 4, 100])
    with pytest.raises(BadFile, match="train must hold fine_labels in 0 … 99, it holds others"):
        read_cifar100(base)
    saved(fine_labels=[], data=data[:0])
    with pytest.raises(BadFile, match="each of its 0 labels"):
        read_cifar100(base)
    saved(data=b"text")
    with pytest.raises(BadFile, match="train must hold an array 'data' and a list 'fine_labels', it holds data, fine_labels"):
        read_cifar100(base)
    (base / "train").write_bytes(write.pickle2([1]))
    with pytest.raises(BadFile, match="train must hold a dictionary, it holds list"):
        read_cifar100(base)


def test_bytes_that_are_fewer_than_the_shape_says_are_named(tmp_path, write):
    base, _ = write.cifar100(tmp_path, count=3)
    whole = (base / "train").read_bytes()
    start = whole.rindex(b"T" + struct.pack("<i", 9216))
    (base / "train").write_bytes(whole[:start] + b"T" + struct.pack("<i", 9000) + whole[start + 5 : start + 9005] + b"tb" + b"u.")
    with pytest.raises(BadFile, match="it holds 9,000 bytes"):
        read_cifar100(base)


def test_skip_bad_leaves_out_whole_batches_but_not_everything(tmp_path, write):
    base, found = write.cifar10(tmp_path)
    (base / "data_batch_2").write_bytes(b"junk")
    (base / "data_batch_4").unlink()
    with pytest.raises(BadFile, match="data_batch_2 is truncated or no pickle"):
        read_cifar10(base)
    splits = read_cifar10(base, skip_bad=True)
    assert splits["train"].labels.tolist() == found[0][1] + found[2][1] + found[4][1]
    assert [sentence.split("/")[-1].split(" (")[0] for sentence in splits["train"].skipped] == [
        "data_batch_2 is truncated or no pickle",
        "data_batch_4 is missing",
    ]
    assert splits["test"].skipped == ()
    (base / "test_batch").unlink()
    with pytest.raises(BadFile, match="test_batch is missing$"):
        read_cifar10(base, skip_bad=True)


def test_missing_names_and_folders_are_named(tmp_path, write):
    with pytest.raises(BadFile, match="must be or hold a folder cifar-10-batches-py with batches.meta in it"):
        read_cifar10(tmp_path)
    base, _ = write.cifar10(tmp_path)
    (base / "batches.meta").write_bytes(write.pickle2({b"label_names": 3}))
    with pytest.raises(BadFile, match="batches.meta must hold a list of names 'label_names', it does not"):
        read_cifar10(tmp_path)


def test_pixels_do_not_share_memory_with_anything(tmp_path, write):
    write.cifar100(tmp_path)
    first, second = read_cifar100(tmp_path)["train"], read_cifar100(tmp_path)["train"]
    first.pixels.zero_()
    assert torch.count_nonzero(second.pixels) > 0
