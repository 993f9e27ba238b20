import numpy
import pytest
import torch
from PIL import Image

from multimix.lab.data.base import BadFile
from multimix.lab.data.tiny_imagenet import read_tiny_imagenet, tiny_imagenet_files


def decoded(path):
    with Image.open(path) as picture:
        return torch.tensor(numpy.array(picture.convert("RGB"))).permute(2, 0, 1)


@pytest.mark.parametrize("cached", [False, True])
def test_images_and_classes_by_folder_and_by_annotation(tmp_path, write, cached):
    base = write.tiny(tmp_path)
    splits = read_tiny_imagenet(tmp_path, cache=tmp_path / "cache" if cached else None)
    assert splits.train.classes == ("n01", "n02", "n10")
    assert splits.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    for i, path in enumerate(f"{wnid}/images/{wnid}_{j}.JPEG" for wnid in ("n01", "n02", "n10") for j in range(2)):
        assert torch.equal(splits.train.pixels[i], decoded(base / "train" / path))
    assert splits.validation.labels.tolist() == [1, 2, 0]
    for i in range(3):
        assert torch.equal(splits.validation.pixels[i], decoded(base / "val" / "images" / f"val_{i}.JPEG"))


def test_the_list_of_classes_keeps_labels_when_folders_are_missing(tmp_path, write):
    base = write.tiny(tmp_path)
    (base / "wnids.txt").write_text("n10\nn00\nn02\nn01\n")
    assert tiny_imagenet_files(base).train.labels.tolist() == [1, 1, 2, 2, 3, 3]
    (base / "wnids.txt").unlink()
    assert tiny_imagenet_files(base).train.classes == ("n01", "n02", "n10")


def test_bad_images_are_named_or_skipped(tmp_path, write):
    base = write.tiny(tmp_path)
    bad, small = base / "train/n02/images/n02_1.JPEG", base / "val/images/val_1.JPEG"
    bad.write_bytes(bad.read_bytes()[:700])
    write.picture(small, 60, 64, format="JPEG")
    with pytest.raises(BadFile, match=r"n02_1.JPEG is an image that cannot be decoded"):
        read_tiny_imagenet(base)
    found = read_tiny_imagenet(base, skip_bad=True, workers=2)
    assert found.train.labels.tolist() == [0, 0, 1, 2, 2]
    assert len(found.train.skipped) == 1
    assert found.validation.skipped == (f"{small} must be 64 × 64 pixels, it is 64 × 60",)


def test_missing_and_wrong_lists_are_named(tmp_path, write):
    base = write.tiny(tmp_path)
    annotations = base / "val/val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn02\t0\n\nval_1.JPEG\tn77\n")
    with pytest.raises(BadFile, match="one of the 3 classes in every line, line 2 gives 'n77'"):
        read_tiny_imagenet(base)
    annotations.write_text("\n")
    with pytest.raises(BadFile, match="val_annotations.txt must list the validation images, it lists none"):
        read_tiny_imagenet(base)
    annotations.unlink()
    with pytest.raises(BadFile, match="val_annotations.txt is missing"):
        read_tiny_imagenet(base)
    (base / "train" / "n99").mkdir()
    with pytest.raises(BadFile, match="n99 must be the folder of a class, there is no class 'n99' in the other lists"):
        read_tiny_imagenet(base)
