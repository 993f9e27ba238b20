import gzip
import struct

import pytest

from multimix.lab.data import BadFile
from multimix.lab.data.fashion_mnist import read_fashion_mnist

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


def test_images_and_labels_are_read(tmp_path, write):
    base, found = write.fashion(tmp_path)
    (base / IMAGES.removesuffix(".gz")).write_bytes(gzip.decompress((base / IMAGES).read_bytes()))
    (base / IMAGES).unlink()  # one of the four is not packed
    splits = read_fashion_mnist(tmp_path)
    for part, (pixels, labels) in found.items():
        assert splits[part].pixels.shape == (len(labels), 1, 28, 28)
        assert splits[part].pixels[:, 0].tolist() == pixels.tolist()
        assert splits[part].labels.tolist() == labels.tolist()
    assert splits["train"].classes[9] == "Ankle boot"


def test_every_damage_is_named(tmp_path, write):
    base, _ = write.fashion(tmp_path)
    good = (base / IMAGES).read_bytes()
    raw = gzip.decompress(good)
    cases = {
        "must begin with the magic number 00000803, it begins with 00000801": gzip.compress(raw[:3] + b"\x01" + raw[4:]),
        "must begin with the magic number 00000803, it begins with nothing": gzip.compress(b""),
        "is truncated or not packed by gzip": good[:-500],
        "it holds 3,919$": gzip.compress(raw[:-1]),
        "must hold 5 × 28 × 28 bytes after its header, it holds more$": gzip.compress(raw + b"\0"),
        "must have 16 bytes of header, it ends after 9": gzip.compress(raw[:9]),
        r"not packed by gzip \(Not a gzipped file": b"<html>",
    }
    for sentence, content in cases.items():
        (base / IMAGES).write_bytes(content)
        with pytest.raises(BadFile, match=rf"^[^\n]*{IMAGES} [^\n]*{sentence}"):
            read_fashion_mnist(base)
    (base / IMAGES).unlink()
    with pytest.raises(BadFile, match=rf"{IMAGES} is missing$"):
        read_fashion_mnist(base)


def test_labels_that_do_not_fit_are_named(tmp_path, write):
    base, _ = write.fashion(tmp_path)
    (base / LABELS).write_bytes(gzip.compress(struct.pack(">II", 0x801, 4) + bytes(4)))
    with pytest.raises(BadFile, match=f"{LABELS} must hold one label per image of {IMAGES}, it holds 4 for 5"):
        read_fashion_mnist(base)
    (base / LABELS).write_bytes(gzip.compress(struct.pack(">II", 0x801, 5) + bytes([0, 1, 10, 2, 3])))
    with pytest.raises(BadFile, match=f"{LABELS} must hold labels in 0 … 9, it holds 10"):
        read_fashion_mnist(base)
