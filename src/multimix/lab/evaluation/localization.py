"""How well a classifier finds objects it was never shown boxes of: a box around where its activation map is high.

Two numbers are easily confused. ``cam_threshold`` is the share of a map's maximum that a pixel must exceed to belong to the box;
``iou_threshold`` is how much the box must overlap a true one to be right. The paper's text and the script it follows give 0.25,
but not for the same of the two; both readings are rules here, and both are reported.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy
import torch
from torch import Tensor, nn

from ..data import Augment, Files
from .base import Finding, measure
from .boxes import Boxed, BoxedBatches, iou, largest_box, with_boxes
from .cam import CamLayers, CamPass, Upsampling, cam_pass, find_layers, heat_maps
from .error import Proportion, proportion
from .predictions import READING, Reading
from .subject import Subject

MOST = 50  # images at a time, since their maps are many
SWEPT_IOU = (0.3, 0.5, 0.7)


@dataclass(frozen=True)
class MapStyle:
    """How maps are made and cut: ``box_sum`` and ``upsample`` as in :func:`heat_maps`, ``in_bytes`` as in :func:`box_of_map`."""

    box_sum: bool = False
    upsample: Upsampling = "bilinear"
    in_bytes: bool = False


PLAIN, SCRIPT = MapStyle(), MapStyle(box_sum=True, upsample="bicubic", in_bytes=True)


@dataclass(frozen=True)
class Rule:
    """When an object counts as found: by the map of the predicted class, and the best of the true boxes.

    The overlap must be at least ``iou_threshold``, or with ``above`` more than that; with ``top1`` the class must be right, too.
    ``whole_pixels`` cuts the corners of the true boxes to whole numbers first.
    """

    name: str
    cam_threshold: float
    iou_threshold: float
    above: bool = False
    top1: bool = False
    style: MapStyle = field(default=SCRIPT)
    whole_pixels: bool = True

    def __post_init__(self) -> None:
        for name in ("cam_threshold", "iou_threshold"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in 0 … 1, got {getattr(self, name)}")

    def overlap(self, box: Tensor, true: Tensor) -> float:
        """The best overlap of ``box [4]`` with one of ``true [n, 4]``; 0 if all of those are out of sight."""
        return _best(box[None], _whole(true) if self.whole_pixels else true)[0]

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
        for one in self.accuracies:
            if one.name == name:
                return one
        raise ValueError(f"no accuracy {name!r}; there are {', '.join(one.name for one in self.accuracies)}")


@measure(
    "localization",
    "boxes from class activation maps, per cent found (data with boxes)",
    columns=("n", "error", "paper_text", "reference", "max_box_gt_known_0.5", "max_box_top1_0.5", "max_box_predicted_0.5"),
)
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
    return Finding(numbers | {one.name: one.accuracy.percent for one in found.accuracies}, found)


def localization(
    network: nn.Module,
    split: Files,
    augment: Augment,
    reading: Reading = READING,
    *,
    rules: Sequence[Rule] = RULES,
    thresholds: int = 100,
    foreign: bool = False,
    cam: CamLayers | None = None,
) -> Localization:
    """Every rule's accuracy, and MaxBoxAcc: the best over ``thresholds`` values of cam_threshold in [0, 1) (0: leave it out).

    MaxBoxAcc (Choe et al., 2020) is given at IoU ≥ 0.3, 0.5 and 0.7. ``max_box_gt_known`` cuts the map of the true class and
    does not ask for the prediction; ``max_box_top1`` wants it right as well. Each has its own best cam_threshold, chosen on these
    very images, which the interval does not know. Maps are plain here: no 3 × 3 sum, bilinear.

    ``foreign`` is for a network whose classes are not those of the split: no class is right or wrong then, so rules that ask are
    left out, and ``max_box_predicted`` cuts the map of the predicted class.
    """
    rules = [rule for rule in rules if not (foreign and rule.top1)]
    if thresholds < 0:
        raise ValueError(f"thresholds must be at least 0, got {thresholds}")
    if not rules and not thresholds:
        raise ValueError("there must be a rule, or thresholds to try, got neither")
    boxed, reading = with_boxes(split), reading._replace(batch=min(MOST, reading.batch))
    cuts = numpy.arange(thresholds) / max(1, thresholds)
    classes = None if foreign else len(split.classes)
    seen = [_overlaps(batch, one, rules, cuts, classes) for batch, one in cam_passes(network, boxed, augment, reading, cam)]
    correct = torch.cat([part.correct for part in seen])
    accuracies = []
    for i, rule in enumerate(rules):
        met = rule.met(torch.cat([part.by_rule[i] for part in seen]), correct)
        accuracies.append(_accuracy(rule.name, rule.cam_threshold, rule.iou_threshold, met))
    if thresholds:
        accuracies += _max_box_accuracies(torch.cat([part.by_cut for part in seen]), correct, cuts, foreign)
    return Localization(
        n=len(boxed),
        without_box=len(split) - len(boxed),
        vanished_boxes=sum(part.vanished_boxes for part in seen),
        vanished_images=sum(part.vanished_images for part in seen),
        error=None if foreign else proportion(int((~correct).sum()), len(boxed)),
        accuracies=tuple(accuracies),
    )


def cam_passes(
    network: nn.Module, split: Files, augment: Augment, reading: Reading, cam: CamLayers | None = None
) -> Iterator[tuple[Boxed, CamPass]]:
    """Every batch of ``split`` with its boxes, and what the network says about it."""
    batches = BoxedBatches(split, augment, reading.batch, reading.workers)
    weight = next(network.parameters(), torch.zeros(0))
    layers = None
    for _, boxed in zip(reading.progress(range(len(batches))), batches, strict=True):
        x = boxed.x.to(weight.device, weight.dtype)
        layers = layers or find_layers(network, x, cam)
        yield boxed, cam_pass(network, x, layers)


def box_of_map(heat: Tensor, cam_threshold: float, *, in_bytes: bool = False) -> Tensor:
    """The box ``[4]`` around the largest region of ``heat [H, W]`` in 0 … 1 above ``cam_threshold`` of its maximum.

    ``in_bytes`` cuts both to whole numbers of 0 … 255 first, as the reference script does. Where nothing is above (the map is
    constant, say), the box is 0, 0, 0, 0.
    """
    if heat.ndim != 2 or heat.numel() == 0:
        raise ValueError(f"heat must be one map [H, W], got {list(heat.shape)}")
    values = heat.detach().cpu().numpy()
    if not (values.min() >= 0 and values.max() <= 1):  # NaN is neither
        raise ValueError(f"heat must lie in 0 … 1, got values from {values.min():g} to {values.max():g}")
    return torch.tensor(_box(values, cam_threshold, in_bytes), dtype=torch.float64)


class _Overlaps(NamedTuple):
    """Of a batch: the best overlap of each image by rule ``[B]`` and by cut ``[B, cuts]``, and what of the boxes was lost."""

    correct: Tensor
    by_rule: list[Tensor]
    by_cut: Tensor
    vanished_boxes: int
    vanished_images: int


def _overlaps(boxed: Boxed, one: CamPass, rules: Sequence[Rule], cuts: numpy.ndarray, classes: int | None) -> _Overlaps:
    if classes not in (None, one.logits.shape[1]):
        raise ValueError(
            f"the network must have the {classes} classes of the split, it has {one.logits.shape[1]}; "
            "with foreign=True its classes may be others"
        )
    size = (boxed.x.shape[2], boxed.x.shape[3])
    predicted = one.logits.argmax(1)
    raw = one.raw(predicted)
    maps = {style: heat_maps(raw, size, box_sum=style.box_sum, upsample=style.upsample) for style in {r.style for r in rules}}
    by_rule = []
    for rule in rules:
        boxes = [box_of_map(heat, rule.cam_threshold, in_bytes=rule.style.in_bytes) for heat in maps[rule.style]]
        overlaps = [rule.overlap(box, true) for box, true in zip(boxes, boxed.boxes, strict=True)]
        by_rule.append(torch.tensor(overlaps, dtype=torch.float64))
    by_cut = torch.zeros(len(boxed.x), 0, dtype=torch.float64)
    if len(cuts):
        plain = heat_maps(raw if classes is None else one.raw(boxed.labels), size)
        boxes_by_cut = [torch.tensor([_box(heat.numpy(), float(cut), False) for cut in cuts]) for heat in plain]
        rows = [_best(boxes, true) for boxes, true in zip(boxes_by_cut, boxed.boxes, strict=True)]
        by_cut = torch.tensor(rows, dtype=torch.float64)
    gone = sum(len(some) == 0 for some in boxed.boxes)
    return _Overlaps(predicted.cpu() == boxed.labels, by_rule, by_cut, sum(boxed.vanished), gone)


def _best(boxes: Tensor, true: Tensor) -> list[float]:
    """For each box the best overlap with a true one; 0 without any."""
    best: list[float] = iou(boxes, true).amax(1).tolist() if len(true) else [0.0] * len(boxes)
    return best


def _whole(boxes: Tensor) -> Tensor:
    corners = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1).floor()
    return torch.cat([corners[:, :2], corners[:, 2:] - corners[:, :2]], 1)


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
            yield _accuracy(f"max_box_{name}_{iou_threshold}", float(cuts[best]), iou_threshold, met[:, best])


def _accuracy(name: str, cam_threshold: float, iou_threshold: float, met: Tensor) -> BoxAccuracy:
    return BoxAccuracy(name, cam_threshold, iou_threshold, proportion(int(met.sum()), len(met)))
