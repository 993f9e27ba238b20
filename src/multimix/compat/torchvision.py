"""``torchvision.transforms.v2.MixUp`` and ``CutMix`` with ``k`` ordered interpolations.

At ``k=1`` the output is torchvision's bit for bit from the same seed (as of 0.28). With ``k > 1``
images and labels have k·B rows, in ascending order of the partner's share, and boxes share one
center. Other tensors with B rows are repeated k times. λ is torchvision's: the weight of the sample
itself.

torchvision is not required. Its tensor types (``tv_tensors``) are preserved.
"""

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..core.checks import can_inspect, check_number, check_whole

LabelsGetter = Callable[[Any], Any]


class Step(NamedTuple):
    """One interpolation.

    Attributes:
        own: Weight of the sample itself.
        box: (left, top, right, bottom) of the box that the partner fills; None blends the two.
    """

    own: float
    box: tuple[int, int, int, int] | None = None


class _Transform(nn.Module):
    """The part that MixUp and CutMix share.

    Args:
        alpha: Parameter of Beta(α, α).
        num_classes: Number of classes, needed for labels that are class indices.
        labels_getter: ``default``, or a function that returns the labels in a batch.
        k: Number of interpolations per pair.
        generator: A CPU generator; None uses torch's global stream.
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        num_classes: int | None = None,
        labels_getter: str | LabelsGetter = "default",
        k: int = 1,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        check_number("alpha", alpha, above=0)
        check_whole("k", k)
        if labels_getter != "default" and not callable(labels_getter):
            raise ValueError(
                f"labels_getter must be 'default' or a function, got {labels_getter!r}"
            )
        self.alpha = float(alpha)
        self.num_classes = num_classes
        self.labels_getter = labels_getter
        self._get_labels = labels_getter if callable(labels_getter) else find_labels
        self.k = k
        self.generator = generator

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, num_classes={self.num_classes}, k={self.k}"

    def forward(self, *inputs: Any) -> Any:
        """Mix a batch.

        Args:
            *inputs: Images and labels, or a tuple, list or dictionary that holds them.

        Returns:
            The same structure with mixed images and soft labels.

        Raises:
            ValueError: If the labels are not found, or images or labels cannot be mixed.
        """
        batch = inputs if len(inputs) > 1 else inputs[0]
        labels = self._get_labels(batch)
        self._check_labels(labels)
        flat, spec = tree_flatten(batch)
        images = [leaf for leaf in _images(flat) if leaf is not labels]
        for image in images:
            _check_image(image, len(labels))
        steps = self.steps(images)
        mixed: list[Any] = []
        for leaf in flat:
            if leaf is labels:
                mixed.append(self._mix_labels(leaf, steps))
            elif any(leaf is image for image in images):
                mixed.append(_as_type_of(leaf, _joined([_mix(leaf, step) for step in steps])))
            elif self.k > 1 and isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == len(labels):
                mixed.append(_as_type_of(leaf, leaf.repeat(self.k, *[1] * (leaf.ndim - 1))))
            else:
                mixed.append(leaf)
        return tree_unflatten(mixed, spec)

    def steps(self, images: list[Tensor]) -> list[Step]:
        """Draw the steps of a batch, in ascending order of the partner's share."""
        raise NotImplementedError

    def weights(self) -> list[float]:
        """Draw K weights of the samples themselves from Beta(α, α), in descending order."""
        # As torch.distributions.Beta, which takes no generator.
        drawn = torch._sample_dirichlet(torch.full((self.k, 2), self.alpha), self.generator)[:, 0]
        return sorted(map(float, drawn), reverse=True)

    def _check_labels(self, labels: Any) -> None:
        if not isinstance(labels, Tensor) or labels.ndim not in (1, 2):
            shape = list(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
            raise ValueError(f"labels must be indices [B] or probabilities [B, C], got {shape}")
        if labels.ndim == 1:
            _check_indices(labels, self.num_classes)
        if labels.ndim == 2 and self.num_classes not in (None, labels.shape[1]):
            got = labels.shape[1]
            raise ValueError(
                f"labels must have {self.num_classes} columns (num_classes), got {got}"
            )

    def _mix_labels(self, labels: Tensor, steps: list[Step]) -> Tensor:
        soft = one_hot(labels, num_classes=self.num_classes or -1) if labels.ndim == 1 else labels
        soft = soft if soft.is_floating_point() else soft.float()
        return _joined([_blend(soft, step.own) for step in steps])


class MixUp(_Transform):
    """Blend every sample with the previous sample in the batch.

    Args:
        alpha: Parameter of Beta(α, α).
        num_classes: Number of classes, needed for labels that are class indices.
        labels_getter: ``default``, or a function that returns the labels in a batch.
        k: Number of interpolations per pair.
        generator: A CPU generator; None uses torch's global stream.
    """

    def steps(self, images: list[Tensor]) -> list[Step]:
        return [Step(own) for own in self.weights()]


class CutMix(_Transform):
    """Paste a box of the previous sample in the batch into every sample.

    Args:
        alpha: Parameter of Beta(α, α).
        num_classes: Number of classes, needed for labels that are class indices.
        labels_getter: ``default``, or a function that returns the labels in a batch.
        k: Number of interpolations per pair.
        generator: A CPU generator; None uses torch's global stream.
    """

    def steps(self, images: list[Tensor]) -> list[Step]:
        weights = self.weights()
        sizes = {(image.shape[-2], image.shape[-1]) for image in images}
        if len(sizes) != 1:
            raise ValueError(f"images must have one height and width, got {sorted(sizes)}")
        [(height, width)] = sizes
        x, y = (
            int(torch.randint(side, (1,), generator=self.generator)) for side in (width, height)
        )
        steps = []
        for own in weights:
            half = 0.5 * math.sqrt(1.0 - own)
            across, down = int(half * width), int(half * height)
            left, right = max(x - across, 0), min(x + across, width)
            top, bottom = max(y - down, 0), min(y + down, height)
            area = (right - left) * (bottom - top)
            steps.append(Step(1.0 - area / (width * height), (left, top, right, bottom)))
        return steps


def find_labels(inputs: Any) -> Any:
    """Return the labels in a batch, by torchvision's rule.

    Args:
        inputs: A pair whose second element is the labels, or a dictionary, alone or as the second
            element, with a key that contains "label".

    Returns:
        The labels.

    Raises:
        ValueError: If there are none.
    """
    candidate = inputs[1] if isinstance(inputs, tuple | list) else inputs
    if isinstance(candidate, Tensor):
        return candidate
    if not isinstance(candidate, Mapping):
        raise ValueError(
            "labels must be the second input or in a dictionary, got "
            f"{type(candidate).__name__}: pass labels_getter="
        )
    names = [name for name in candidate if isinstance(name, str) and "label" in name.lower()]
    exact = [name for name in names if name.lower() == "labels"]
    if not names:
        known = ", ".join(map(str, candidate))
        raise ValueError(f"labels not found among the keys {known}: pass labels_getter=")
    return candidate[(exact or names)[0]]


def _images(flat: list[Any]) -> list[Tensor]:
    """Images and videos of torchvision; if there are none, the first plain tensor."""
    types = _tv_tensors()
    if types is not None:
        unsupported = (types.BoundingBoxes, types.Mask, types.KeyPoints)
        if any(isinstance(leaf, unsupported) for leaf in flat):
            raise ValueError("boxes, masks and key points cannot be mixed")
        wrapped = [leaf for leaf in flat if isinstance(leaf, types.Image | types.Video)]
        if wrapped:
            return wrapped
    plain = [leaf for leaf in flat if isinstance(leaf, Tensor)]
    return plain[:1]


def _check_indices(labels: Tensor, num_classes: int | None) -> None:
    if num_classes is None:
        raise ValueError("num_classes must be given for labels that are class indices")
    if labels.dtype != torch.int64:
        raise ValueError(f"labels [B] must be int64, got {labels.dtype}: use labels.long()")
    if len(labels) and can_inspect(labels):
        low, high = (int(end) for end in labels.aminmax())
        if low < 0 or high >= num_classes:
            raise ValueError(f"labels must be in 0 … {num_classes - 1}, got {low} … {high}")


def _check_image(image: Tensor, count: int) -> None:
    types = _tv_tensors()
    axes = 5 if types is not None and isinstance(image, types.Video) else 4
    if image.ndim != axes or len(image) != count:
        shape = list(image.shape)
        raise ValueError(f"images must have {axes} axes and {count} rows like labels, got {shape}")
    if not image.is_floating_point():
        raise ValueError(f"images must be floating point, got {image.dtype}")


def _mix(image: Tensor, step: Step) -> Tensor:
    if step.box is None:
        return _blend(image, step.own)
    left, top, right, bottom = step.box
    mixed = image.clone()
    mixed[..., top:bottom, left:right] = image[..., top:bottom, left:right].roll(1, 0)
    return mixed


def _blend(x: Tensor, own: float) -> Tensor:
    return x.roll(1, 0).mul_(1.0 - own).add_(x.mul(own))


def _joined(rows: list[Tensor]) -> Tensor:
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _as_type_of(like: Tensor, tensor: Tensor) -> Tensor:
    types = _tv_tensors()
    if types is None or not isinstance(like, types.TVTensor):
        return tensor
    wrapped: Tensor = types.wrap(tensor, like=like)
    return wrapped


def _tv_tensors() -> Any:
    """torchvision's tensor types if they were imported; otherwise no input can be one of them."""
    return sys.modules.get("torchvision.tv_tensors")
