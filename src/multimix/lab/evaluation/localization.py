"""How well a classifier finds objects it was never shown boxes of: a box around where its activation map is high.

Two numbers are easily confused. ``cam_threshold`` is the share of a map's maximum that a pixel must exceed to belong to the box;
``iou_threshold`` is how much the box must overlap a true one to be right. The paper's text and the script it follows give 0.25,
but not for the same of the two; both readings are rules here, and both are reported.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor, nn

from ..data import Augment, Files
from ..images import ImageGrid
from .base import Finding, measure
from .box_pictures import blend_heat, box_grid, pictures_seen
from .boxes import Boxed, boxed_batches, iou, largest_box, with_boxes
from .cam import CamPass, cam_pass, find_layers, heat_maps
from .error import Proportion, proportion
from .predictions import READING, Reading
from .subject import Subject

MOST = 50  # images at a time, since their maps are many
SWEPT_IOU = (0.3, 0.5, 0.7)
PICTURES, PICTURES_PER_ROW = 10, 5


@dataclass(frozen=True)
class Rule:
    """When an object counts as found: by the map of the predicted class, and the best of the true boxes.

    The overlap must be at least ``iou_threshold``, or with ``above`` more than that; with ``top1`` the class must be right, too.
    ``as_script`` makes the maps as the reference script does, cuts them in whole numbers of 0 … 255, and first cuts the corners
    of the true boxes to whole pixels.
    """

    name: str
    cam_threshold: float
    iou_threshold: float
    above: bool = False
    top1: bool = False
    as_script: bool = True

    def box(self, heat: Tensor) -> Tensor:
        """The box ``[4]`` of a map ``heat [H, W]``."""
        return box_of_map(heat, self.cam_threshold, in_bytes=self.as_script)

    def overlap(self, box: Tensor, true: Tensor) -> float:
        """The best overlap of ``box [4]`` with one of ``true [n, 4]``; 0 if all of those are out of sight."""
        if self.as_script:
            low, high = true[:, :2].floor(), (true[:, :2] + true[:, 2:]).floor()
            true = torch.cat([low, high - low], 1)
        return _best(box[None], true)[0]

    def met(self, overlap: Tensor, correct: Tensor) -> Tensor:
        """Whether each object is found, from its best overlap and whether its class is right."""
        found = overlap > self.iou_threshold if self.above else overlap >= self.iou_threshold
        return found & correct if self.top1 else found


# The text names no cam_threshold for ImageNet; it is the script's, as is the map.
PAPER_TEXT = Rule("paper_text", cam_threshold=0.25, iou_threshold=0.25, above=True, top1=False)
REFERENCE = Rule("reference", cam_threshold=0.25, iou_threshold=0.5, above=False, top1=True)
RULES = (PAPER_TEXT, REFERENCE)


@dataclass(frozen=True)
class BoxAccuracy:
    """Objects found, in per cent with Wilson's 95 % interval, and the two thresholds that holds for."""

    name: str
    cam_threshold: float
    iou_threshold: float
    accuracy: Proportion


@dataclass(frozen=True)
class Localization:
    """Accuracies over ``n`` images, and their top-1 ``error`` (None where the classes are others).

    ``without_box`` images of the split have no box and are not among the n. ``vanished_boxes`` lie outside what the network
    sees and are dropped; ``vanished_images`` have no other, and count as not found.
    """

    n: int
    without_box: int
    vanished_boxes: int
    vanished_images: int
    error: Proportion | None
    accuracies: tuple[BoxAccuracy, ...]

    def __getitem__(self, name: str) -> BoxAccuracy:
        return next(one for one in self.accuracies if one.name == name)


@measure("localization")
def measure_localization(subject: Subject, reading: Reading) -> Finding:
    """The boxes of a subject's class activation maps."""
    split = subject.report
    if not isinstance(split, Files) or split.boxes is None:
        raise ValueError(
            f"{subject.samples.get('data', 'the data set')} has no boxes, which localization needs; "
            "imagenet, tiny_imagenet and cub200 have (--data-set NAME)"
        )
    found = localization(subject.network, split, subject.evaluation, reading, foreign=subject.foreign)
    numbers: dict[str, float | None] = {"n": found.n, "error": None if found.error is None else found.error.percent}
    numbers |= {accuracy.name: accuracy.accuracy.percent for accuracy in found.accuracies}
    boxed = with_boxes(split)
    rows = torch.linspace(0, len(boxed) - 1, min(PICTURES, len(boxed))).round().long()
    pictures = box_pictures(subject.network, boxed.take(rows), subject.evaluation, foreign=subject.foreign)
    return Finding(numbers, found, {"boxes": pictures})


def box_pictures(
    network: nn.Module, split: Files, augment: Augment, *, rule: Rule = REFERENCE, foreign: bool = False
) -> ImageGrid:
    """Return pictures with the heat map of the predicted class, its box, and the true boxes.

    Args:
        network: The network.
        split: Samples; those without a box are omitted.
        augment: Preparation of the samples.
        rule: Rule of the predicted box, and of the titles: overlap, and whether the object is found.
        foreign: Whether the network's classes are not those of the split; no class is wrong then.
    """
    split = with_boxes(split)
    ((batch, seen),) = cam_passes(network, split, augment, Reading(len(split)))
    images, predicted = pictures_seen(split, augment), seen.logits.argmax(1)
    maps = heat_maps(seen.raw(predicted), (images.shape[2], images.shape[3]), as_script=rule.as_script)
    boxes = [rule.box(heat) for heat in maps]
    titles = []
    for box, true, correct in zip(boxes, batch.boxes, (predicted.cpu() == batch.labels) | foreign, strict=True):
        overlap = torch.tensor(rule.overlap(box, true), dtype=torch.float64)
        verdict = "found" if rule.met(overlap, correct) else "class wrong" if not correct else "not found"
        titles.append(f"IoU {float(overlap):.2f}, {verdict}")
    caption = "heat map of the predicted class with its box, and true boxes"
    return box_grid(blend_heat(images, maps), boxes, batch.boxes, titles, columns=PICTURES_PER_ROW, caption=caption)


def localization(
    network: nn.Module,
    split: Files,
    augment: Augment,
    reading: Reading = READING,
    *,
    rules: Sequence[Rule] = RULES,
    thresholds: int = 100,
    foreign: bool = False,
) -> Localization:
    """Every rule's accuracy, and MaxBoxAcc: the best over ``thresholds`` values of cam_threshold in [0, 1) (0: leave it out).

    MaxBoxAcc (Choe et al., 2020) is given at IoU ≥ 0.3, 0.5 and 0.7. ``max_box_gt_known`` cuts the map of the true class and
    does not ask for the prediction; ``max_box_top1`` wants it right as well. Each has its own best cam_threshold, chosen on these
    very images, which the interval does not know. Maps are plain here: no 3 × 3 sum, bilinear.

    ``foreign`` is for a network whose classes are not those of the split: no class is right or wrong then, so rules that ask are
    left out, and ``max_box_predicted`` cuts the map of the predicted class.
    """
    rules = [rule for rule in rules if not (foreign and rule.top1)]
    boxed, reading = with_boxes(split), reading._replace(batch=min(MOST, reading.batch))
    cuts = numpy.arange(thresholds) / max(1, thresholds)
    right: list[Tensor] = []
    by_rule: list[list[float]] = [[] for _ in rules]  # the best overlap of every image
    by_cut: list[list[float]] = []
    vanished_boxes = vanished_images = 0
    for batch, seen in cam_passes(network, boxed, augment, reading):
        if not foreign and seen.logits.shape[1] != len(split.classes):
            raise ValueError(
                f"the network must have the {len(split.classes)} classes of the split, it has {seen.logits.shape[1]}; "
                "with foreign=True its classes may be others"
            )
        predicted, size = seen.logits.argmax(1), (batch.x.shape[2], batch.x.shape[3])
        raw = seen.raw(predicted)
        maps = {script: heat_maps(raw, size, as_script=script) for script in {rule.as_script for rule in rules}}
        for rule, overlaps in zip(rules, by_rule, strict=True):
            pairs = zip(maps[rule.as_script], batch.boxes, strict=True)
            overlaps += [rule.overlap(rule.box(heat), true) for heat, true in pairs]
        if thresholds:
            plain = heat_maps(raw if foreign else seen.raw(batch.labels), size)
            for heat, true in zip(plain.numpy(), batch.boxes, strict=True):
                by_cut.append(_best(torch.tensor([_box(heat, float(cut), False) for cut in cuts]), true))
        right.append(predicted.cpu() == batch.labels)
        vanished_boxes += sum(batch.vanished)
        vanished_images += sum(len(some) == 0 for some in batch.boxes)
    correct = torch.cat(right)
    accuracies = [
        _accuracy(rule, rule.met(torch.tensor(overlaps, dtype=torch.float64), correct))
        for rule, overlaps in zip(rules, by_rule, strict=True)
    ]
    if thresholds:
        accuracies += _max_box_accuracies(torch.tensor(by_cut, dtype=torch.float64), correct, cuts, foreign)
    return Localization(
        n=len(boxed),
        without_box=len(split) - len(boxed),
        vanished_boxes=vanished_boxes,
        vanished_images=vanished_images,
        error=None if foreign else proportion(int((~correct).sum()), len(boxed)),
        accuracies=tuple(accuracies),
    )


def cam_passes(network: nn.Module, split: Files, augment: Augment, reading: Reading) -> Iterator[tuple[Boxed, CamPass]]:
    """Every batch of ``split`` with its boxes, and what the network says about it."""
    batches = boxed_batches(split, augment, reading.batch, reading.workers)
    weight = next(network.parameters(), torch.zeros(0))
    layers = None
    for _, boxed in zip(reading.progress(range(reading.batches_of(split))), batches, strict=True):
        x = boxed.x.to(weight.device, weight.dtype)
        layers = layers or find_layers(network, x)
        yield boxed, cam_pass(network, x, layers)


def box_of_map(heat: Tensor, cam_threshold: float, *, in_bytes: bool = False) -> Tensor:
    """The box ``[4]`` around the largest region of ``heat [H, W]`` in 0 … 1 above ``cam_threshold`` of its maximum.

    ``in_bytes`` cuts both to whole numbers of 0 … 255 first, as the reference script does. Where nothing is above (the map is
    constant, say), the box is 0, 0, 0, 0.
    """
    return torch.tensor(_box(heat.detach().cpu().numpy(), cam_threshold, in_bytes), dtype=torch.float64)


def _best(boxes: Tensor, true: Tensor) -> list[float]:
    """For each box the best overlap with a true one; 0 without any."""
    best: list[float] = iou(boxes, true).amax(1).tolist() if len(true) else [0.0] * len(boxes)
    return best


def _box(values: numpy.ndarray, cam_threshold: float, in_bytes: bool) -> tuple[int, int, int, int]:
    if in_bytes:
        whole = (values * 255).astype(numpy.uint8)
        return largest_box(whole > cam_threshold * float(whole.max()))
    return largest_box(values > cam_threshold * values.max())


def _max_box_accuracies(by_cut: Tensor, correct: Tensor, cuts: numpy.ndarray, foreign: bool) -> Iterator[BoxAccuracy]:
    """MaxBoxAcc at every overlap of SWEPT_IOU; of equally good thresholds it is the lowest."""
    everything = torch.ones_like(correct)
    wanted = {"predicted": everything} if foreign else {"gt_known": everything, "top1": correct}
    for name, allowed in wanted.items():
        for iou_threshold in SWEPT_IOU:
            met = (by_cut >= iou_threshold) & allowed[:, None]
            best = int(numpy.argmax(met.sum(0).numpy()))
            rule = Rule(f"max_box_{name}_{iou_threshold}", float(cuts[best]), iou_threshold)
            yield _accuracy(rule, met[:, best])


def _accuracy(rule: Rule, met: Tensor) -> BoxAccuracy:
    return BoxAccuracy(rule.name, rule.cam_threshold, rule.iou_threshold, proportion(int(met.sum()), len(met)))
