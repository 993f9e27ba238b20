import pytest
import torch

from multimix.lab.data import BadFile
from multimix.lab.data.imagenet import read_imagenet
from multimix.lab.data.reading import PICTURE_FORMATS, read_picture

ANNOTATION = "<annotation><filename>x</filename>{}</annotation>"
OBJECT = "<object><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"


def test_any_tree_of_class_folders_is_read_in_order(tmp_path, write):
    write.tree(tmp_path)
    write.picture(tmp_path / "train/bee/deep/er/Z.PNG", 5, 6)
    (tmp_path / "train/bee/notes.txt").write_text("no image")
    (tmp_path / "train/bee/._0.jpg").write_bytes(b"what some systems leave behind")
    (tmp_path / "train/.hidden").mkdir()
    splits = read_imagenet(tmp_path)
    assert splits["train"].classes == splits["validation"].classes == ("ant", "bee", "cow")
    assert [path.removeprefix(f"{tmp_path}/train/") for path in splits["train"].paths[4:9]] == [
        "bee/0.jpg", "bee/1.jpg", "bee/2.jpg", "bee/3.jpg", "bee/deep/er/Z.PNG",
    ]  # fmt: skip
    assert splits["train"].labels.tolist() == [0] * 4 + [1] * 5 + [2] * 4
    x, y = splits["train"].batch(torch.tensor([8, 1]))
    assert [tuple(image.shape) for image in x] == [(3, 5, 6), (3, 21, 29)]
    assert y.tolist() == [1, 0]


def test_the_official_list_keeps_labels_of_a_part_of_the_classes(tmp_path, write):
    base = write.tree(tmp_path / "imagenet", parts=("val",))
    (base / "LOC_synset_mapping.txt").write_text("aaa first, of all\nbee a bee\ncow\nant x\n")
    splits = read_imagenet(tmp_path)
    assert list(splits.parts) == ["validation"]
    assert splits["validation"].classes == ("aaa", "bee", "cow", "ant")
    assert splits["validation"].labels.tolist() == [3] * 4 + [1] * 4 + [2] * 4


def test_images_can_be_read_at_the_stored_size(tmp_path, write):
    write.tree(tmp_path)
    x, _ = read_imagenet(tmp_path, short_side=16)["train"].batch(torch.tensor([0]))
    assert torch.equal(x[0], read_picture(str(tmp_path / "train/ant/0.jpg"), 16))
    assert min(x.shape[2:]) == 16
    with pytest.raises(ValueError, match="short_side must be at least 1, got 0"):
        read_imagenet(tmp_path, short_side=0)


def test_boxes_of_the_validation_images(tmp_path, write):
    write.tree(tmp_path, each=1)
    folder = tmp_path / "Annotations/CLS-LOC/val"
    folder.mkdir(parents=True)
    # All three images are called 0; the last one written is what they share.
    (folder / "0.xml").write_text(ANNOTATION.format(OBJECT.format(13, 1, 326, 255) + OBJECT.format(0, 2, 10, 12)))
    assert read_imagenet(tmp_path)["validation"].boxes is None
    splits = read_imagenet(tmp_path, boxes=True)
    assert splits["train"].boxes is None
    assert splits["validation"].boxes[2].tolist() == [[13, 1, 313, 254], [0, 2, 10, 10]]
    (folder / "0.xml").write_text(ANNOTATION.format(""))
    assert read_imagenet(tmp_path, boxes=True)["validation"].boxes[0].shape == (0, 4)
    entity = '<!DOCTYPE a [<!ENTITY b "c">]>' + ANNOTATION.format("&b;")
    for bad in ("<annotation>", ANNOTATION.format(OBJECT.format(1, 2, 3, "x")), entity):
        (folder / "0.xml").write_text(bad)
        with pytest.raises(BadFile, match=r"^[^\n]*0.xml must be an annotation with boxes, it is not"):
            read_imagenet(tmp_path, boxes=True)
    (folder / "0.xml").unlink()
    with pytest.raises(BadFile, match="0.xml is missing"):
        read_imagenet(tmp_path, boxes=True)


def test_empty_flat_and_unknown_folders_are_named(tmp_path, write):
    with pytest.raises(BadFile, match="must be or hold a folder imagenet with train in it"):
        read_imagenet(tmp_path)
    (tmp_path / "train").mkdir()
    write.picture(tmp_path / "train/a.jpg", 4, 4)
    with pytest.raises(BadFile, match="train must hold one folder per class, it has none$"):
        read_imagenet(tmp_path)
    (tmp_path / "train/ant").mkdir()
    with pytest.raises(BadFile, match=r"train must hold images \(.jpeg, .*\) in folders, one per class, it has none$"):
        read_imagenet(tmp_path)


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_images_are_skipped_with_a_sentence(tmp_path, write, workers):
    write.tree(tmp_path)
    (tmp_path / "train/bee/2.jpg").write_bytes(b"junk")
    splits = read_imagenet(tmp_path, skip_bad=True, workers=workers)
    assert splits["train"].skipped == (f"{tmp_path}/train/bee/2.jpg is not an image in {', '.join(PICTURE_FORMATS)}",)
    assert splits["train"].labels.tolist() == [0] * 4 + [1] * 3 + [2] * 4
    assert splits["validation"].skipped == ()
    with pytest.raises(BadFile, match="bee/2.jpg is not an image"):
        read_imagenet(tmp_path)["train"].batch(torch.tensor([6]))
