import pytest
import torch

from multimix.lab.data import BadFile
from multimix.lab.data.cub import read_cub200


def test_images_classes_and_boxes_by_the_official_split(tmp_path, write):
    base = write.cub(tmp_path)
    splits = read_cub200(tmp_path)
    assert [path.removeprefix(f"{base}/images/") for path in splits["train"].paths] == [
        "001.Auk/a.jpg",
        "001.Auk/b.jpg",
        "002.Owl/d.jpg",
    ]
    assert splits["train"].labels.tolist() == [0, 0, 1]
    assert splits["test"].labels.tolist() == [0, 1]
    assert splits["test"].classes == ("001.Auk", "002.Owl")
    assert torch.cat(splits["test"].boxes).tolist() == [[2.5, 2, 12, 7.25], [4.5, 2, 14, 7.25]]
    x, _ = splits["test"].batch(torch.tensor([1]))
    assert x.shape == (1, 3, 24, 30)
    assert read_cub200(tmp_path, short_side=12)["test"].batch(torch.tensor([1]))[0].shape == (1, 3, 12, 15)


def test_the_lists_need_not_be_in_order(tmp_path, write):
    base = write.cub(tmp_path)
    before = read_cub200(base)
    for name in ("image_class_labels", "bounding_boxes", "train_test_split"):
        path = base / f"{name}.txt"
        path.write_text("\n".join(reversed(path.read_text().splitlines())))
    after = read_cub200(base)
    assert after["train"].paths == before["train"].paths
    assert torch.equal(after["train"].labels, before["train"].labels)
    assert torch.equal(torch.cat(after["train"].boxes), torch.cat(before["train"].boxes))


@pytest.mark.parametrize("name", ["images", "image_class_labels", "train_test_split", "bounding_boxes", "classes"])
def test_a_missing_or_empty_list_is_named(tmp_path, write, name):
    base = write.cub(tmp_path)
    (base / f"{name}.txt").unlink()
    with pytest.raises(BadFile, match=f"{name}.txt is missing$"):
        read_cub200(base)
    (base / f"{name}.txt").write_text("")
    with pytest.raises(BadFile, match=f"{name}.txt must have one line for every image"):
        read_cub200(base)


def test_lists_that_do_not_fit_together_are_named(tmp_path, write):
    base = write.cub(tmp_path)
    labels, boxes = base / "image_class_labels.txt", base / "bounding_boxes.txt"
    labels.write_text("1 1\n2 1\n4 2\n5 2\n")
    with pytest.raises(
        BadFile, match="image_class_labels.txt must have one line for every image of images.txt, image 3 is missing"
    ):
        read_cub200(base)
    labels.write_text("1 1\n2 1\n3 9\n4 2\n5 2\n")
    with pytest.raises(BadFile, match="must name classes of classes.txt, image 3 has 9"):
        read_cub200(base)
    base = write.cub(tmp_path / "again")
    boxes = base / "bounding_boxes.txt"
    boxes.write_text(boxes.read_text().replace("2.5 2.0", "2.5"))
    with pytest.raises(BadFile, match="bounding_boxes.txt must have 5 columns, line 3 has 4"):
        read_cub200(base)
    boxes.write_text("".join(f"{i} 1 2 3 x\n" for i in range(1, 6)))
    with pytest.raises(BadFile, match="bounding_boxes.txt must hold numbers, it does not"):
        read_cub200(base)


def test_missing_images_are_skipped_with_a_sentence(tmp_path, write):
    base = write.cub(tmp_path)
    (base / "images/001.Auk/b.jpg").unlink()
    splits = read_cub200(base, skip_bad=True)
    assert splits["train"].skipped == (f"{base}/images/001.Auk/b.jpg is missing",)
    assert torch.cat(splits["train"].boxes)[:, 0].tolist() == [0.5, 3.5]
    assert splits["train"].labels.tolist() == [0, 1]
