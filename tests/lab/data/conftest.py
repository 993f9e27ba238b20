"""Miniature data sets in the official layouts, written by hand."""

import struct
import wave
from pathlib import Path

import numpy
import pytest
from PIL import Image


def pytest_collection_modifyitems(items):
    """Workers are forked while torch has threads, of which Python 3.12 and later warn; torch's own loader does the same."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(
                pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
            )


@pytest.fixture
def write():
    """The writers below, by name."""
    return Writers()


class Writers:
    def picture(self, path, height, width, seed=0, mode="RGB", **options):
        """A random picture; its pixels [H, W, 3] as they were before compression."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (height, width, 3) if mode == "RGB" else (height, width)
        pixels = numpy.random.default_rng(seed).integers(0, 256, shape, dtype=numpy.uint8)
        Image.fromarray(pixels).save(path, **options)
        return pixels

    def clip(self, path, samples, rate=16000, channels=1, width=2):
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(width)
            file.setframerate(rate)
            file.writeframes(numpy.asarray(samples, dtype=numpy.int16).tobytes())

    def cifar10(self, folder, per_file=4):
        """Pixels and labels of the five training batches, then of the test."""
        base = folder / "cifar-10-batches-py"
        base.mkdir(parents=True)
        names = [f"class {i}".encode() for i in range(10)]
        (base / "batches.meta").write_bytes(pickle2({b"num_cases_per_batch": per_file, b"label_names": names, b"num_vis": 3072}))
        found = []
        for i, name in enumerate([f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]):
            data = numpy.random.default_rng(i).integers(0, 256, (per_file, 3072), dtype=numpy.uint8)
            labels = [(i + j) % 10 for j in range(per_file)]
            (base / name).write_bytes(pickle2({b"batch_label": b"x", b"labels": labels, b"data": data, b"filenames": [b"a.png"]}))
            found.append((data, labels))
        return base, found

    def cifar100(self, folder, count=6):
        base = folder / "cifar-100-python"
        base.mkdir(parents=True)
        fine, coarse = [f"fine {i}".encode() for i in range(100)], [f"coarse {i}".encode() for i in range(20)]
        (base / "meta").write_bytes(pickle2({b"fine_label_names": fine, b"coarse_label_names": coarse}))
        found = {}
        for i, part in enumerate(("train", "test")):
            data = numpy.random.default_rng(i).integers(0, 256, (count, 3072), dtype=numpy.uint8)
            labels = {"fine": [(37 * j + i) % 100 for j in range(count)], "coarse": [(7 * j + i) % 20 for j in range(count)]}
            content = {b"filenames": [b"a"], b"fine_labels": labels["fine"], b"coarse_labels": labels["coarse"], b"data": data}
            (base / part).write_bytes(pickle2(content))
            found[part] = (data, labels)
        return base, found

    def tiny(self, folder, classes=("n02", "n10", "n01"), train=2, validation=3):
        base = folder / "tiny-imagenet-200"
        for i, wnid in enumerate(classes):
            for j in range(train):
                self.picture(base / "train" / wnid / "images" / f"{wnid}_{j}.JPEG", 64, 64, seed=10 * i + j, format="JPEG")
            (base / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t9\t9\n")
        lines = []
        for j in range(validation):
            self.picture(base / "val" / "images" / f"val_{j}.JPEG", 64, 64, seed=99 + j, format="JPEG", mode="L" if j else "RGB")
            lines.append(f"val_{j}.JPEG\t{classes[j % len(classes)]}\t0\t32\t44\t62\n")
        (base / "val" / "val_annotations.txt").write_text("".join(lines))
        (base / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in classes))
        return base

    def tree(self, folder, parts=("train", "val"), classes=("ant", "bee", "cow"), each=4, size=None):
        """Folders of JPEGs, of many sizes unless one is given."""
        for p, part in enumerate(parts):
            for i, name in enumerate(classes):
                for j in range(each):
                    height, width = size or (20 + 3 * i + j, 31 - 2 * j)
                    self.picture(folder / part / name / f"{j}.jpg", height, width, seed=100 * p + 10 * i + j)
        return folder

    def cub(self, folder):
        """Five images of two classes; the third is in the test."""
        base = folder / "CUB_200_2011"
        names = ["001.Auk/a.jpg", "001.Auk/b.jpg", "001.Auk/c.jpg", "002.Owl/d.jpg", "002.Owl/e.jpg"]
        for i, name in enumerate(names):
            self.picture(base / "images" / name, 20 + i, 30, seed=i)
        lists = {
            "images": names,
            "image_class_labels": [1, 1, 1, 2, 2],
            "train_test_split": [1, 1, 0, 1, 0],
            "bounding_boxes": [f"{i}.5 2.0 {10 + i}.0 7.25" for i in range(5)],
        }
        for name, column in lists.items():
            (base / f"{name}.txt").write_text("".join(f"{i} {value}\n" for i, value in enumerate(column, start=1)))
        (base / "classes.txt").write_text("1 001.Auk\n2 002.Owl\n")
        return base

    def speech(self, folder):
        """Two words: up has 4 clips, one for validation and one for the test; yes has 2, one for the test."""
        base = folder / "speech_commands_v0.01"
        for i, (word, count) in enumerate((("yes", 2), ("up", 4), ("_background_noise_", 1))):
            for j in range(count):
                sound = numpy.random.default_rng(10 * i + j).integers(-20000, 20000, 16000 - 777 * j)
                self.clip(base / word / f"{j}_nohash_0.wav", sound)
        (base / "validation_list.txt").write_text("up/1_nohash_0.wav\n")
        (base / "testing_list.txt").write_text("up/3_nohash_0.wav\nyes/0_nohash_0.wav\n")
        return base

    def pickle2(self, value):
        return pickle2(value)


def pickle2(value):
    """A pickle as Python 2 wrote it: text and bytes are the same, arrays by NumPy 1."""
    return b"\x80\x02" + _opcodes(value) + b"."


def _opcodes(value):
    if isinstance(value, bytes):
        return (b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_opcodes, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_opcodes(key) + _opcodes(item) for key, item in value.items()) + b"u"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + _opcodes(-1) * 2 + b"K\x00tb"
    shape = b"".join(map(_opcodes, value.shape)) + b"\x86"
    return empty + b"(K\x01" + shape + kind + b"\x89" + _opcodes(value.tobytes()) + b"tb"
