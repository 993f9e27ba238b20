import numpy
import pytest
import torch
from PIL import Image

from multimix.lab.data import BadFile
from multimix.lab.data.reading import without_bad
from multimix.lab.data.tiny_imagenet import read_tiny_imagenet, tiny_imagenet_files


def decoded(path):
    with Image.open(path) as picture:
        return torch.tensor(numpy.array(picture.convert("RGB"))).permute(2, 0, 1)


@pytest.mark.parametrize("cached", [False, True])
def test_images_and_classes_by_folder_and_by_annotation(tmp_path, write, cached):
    base = write.tiny(tmp_path)
    splits = read_tiny_imagenet(tmp_path, cache=tmp_path / "cache" if cached else None)
    assert splits["train"].classes == ("n01", "n02", "n10")
    assert splits["train"].labels.tolist() == [0, 0, 1, 1, 2, 2]
    for i, path in enumerate(f"{wnid}/images/{wnid}_{j}.JPEG" for wnid in ("n01", "n02", "n10") for j in range(2)):
        assert torch.equal(splits["train"].pixels[i], decoded(base / "train" / path))
    assert splits["validation"].labels.tolist() == [1, 2, 0]
    for i in range(3):
        assert torch.equal(splits["validation"].pixels[i], decoded(base / "val" / "images" / f"val_{i}.JPEG"))


def test_the_list_of_classes_keeps_labels_when_folders_are_missing(tmp_path, write):
    base = write.tiny(tmp_path)
    (base / "wnids.txt").write_text("n10\nn00\nn02\nn01\n")
    assert tiny_imagenet_files(base)["train"].labels.tolist() == [1, 1, 2, 2, 3, 3]
    (base / "wnids.txt").unlink()
    assert tiny_imagenet_files(base)["train"].classes == ("n01", "n02", "n10")


def test_bad_images_are_named_or_skipped(tmp_path, write):
    base = write.tiny(tmp_path)
    bad, small = base / "train/n02/images/n02_1.JPEG", base / "val/images/val_1.JPEG"
    bad.write_bytes(bad.read_bytes()[:700])
    write.picture(small, 60, 64, format="JPEG")
    with pytest.raises(BadFile, match=r"n02_1.JPEG is an image that cannot be decoded"):
        read_tiny_imagenet(base)
    found = read_tiny_imagenet(base, skip_bad=True, workers=2)
    assert found["train"].labels.tolist() == [0, 0, 1, 2, 2]
    assert len(found["train"].skipped) == 1
    assert found["validation"].skipped == (f"{small} must be 64 × 64 pixels, it is 64 × 60",)


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


def test_validation_boxes_have_both_corners_inside(tmp_path, write):
    base = write.tiny(tmp_path)
    rows = ("0\t32\t44\t62", "5\t7\t5\t7", "0\t0\t63\t63")
    (base / "val/val_annotations.txt").write_text("".join(f"val_{i}.JPEG\tn02\t{row}\n" for i, row in enumerate(rows)))
    files = tiny_imagenet_files(base)
    assert files["train"].boxes is None
    assert all(box.dtype == torch.float32 for box in files["validation"].boxes)
    assert torch.stack(files["validation"].boxes).tolist() == [[[0, 32, 45, 31]], [[5, 7, 1, 1]], [[0, 0, 64, 64]]]
    (base / "val/images/val_0.JPEG").unlink()
    assert torch.cat(without_bad(files["validation"]).boxes).tolist() == [[5, 7, 1, 1], [0, 0, 64, 64]]


def test_boxes_may_be_missing(tmp_path, write):
    base = write.tiny(tmp_path)
    annotations = base / "val/val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn02\nval_1.JPEG\tn10\n")
    assert tiny_imagenet_files(base)["validation"].boxes is None
    assert read_tiny_imagenet(base)["validation"].labels.tolist() == [1, 2]
    annotations.write_text("val_0.JPEG\tn02\nval_1.JPEG\tn10\t9\t9\t3\t9\nval_2.JPEG\tn01\t1\t2\t3\t4\r\n")
    boxes = tiny_imagenet_files(base)["validation"].boxes
    assert [list(box.shape) for box in boxes] == [[0, 4], [0, 4], [1, 4]]
    assert boxes[2].tolist() == [[1, 2, 3, 3]]


@pytest.mark.parametrize("row", ["1\t2\t3", "1\t2\t3\tx", "1\t2\t3\tnan", "1\t2\t3\t4\t5\t6\t7\t8"])
def test_boxes_that_are_none_are_named(tmp_path, write, row):
    base = write.tiny(tmp_path)
    (base / "val/val_annotations.txt").write_text(f"val_0.JPEG\tn02\nval_1.JPEG\tn10\t{row}\n")
    words = f"a class and the four corners of a box, in every line, line 2 gives '{' '.join(row.split())}'"
    with pytest.raises(BadFile, match=words):
        tiny_imagenet_files(base)
