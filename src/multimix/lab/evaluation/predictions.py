"""What a network says about every sample of a split: its logits, beside the true classes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from ...logits import Output, logits_of
from ...saliency import evaluation_mode
from ..data import Augment, Loader, Split


@dataclass(frozen=True, eq=False)
class Predictions:
    """``logits [N, C]``, finite, and the true classes ``labels [N]``, int64; N ≥ 1."""

    logits: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        logits, labels = self.logits, self.labels
        if logits.ndim != 2 or 0 in logits.shape or not logits.is_floating_point():
            raise ValueError(
                f"logits must be floating point [N, C] with N ≥ 1 and C ≥ 1, got {logits.dtype} {list(logits.shape)}"
            )
        if labels.dtype != torch.int64 or labels.shape != logits.shape[:1]:
            raise ValueError(f"labels must be int64 [{len(logits)}], one per row, got {labels.dtype} {list(labels.shape)}")
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= logits.shape[1]:
            raise ValueError(
                f"labels must lie in 0 … {logits.shape[1] - 1}, since there are {logits.shape[1]} outputs, got {low} … {high}"
            )
        bad = (~logits.isfinite()).any(dim=1).nonzero().flatten().tolist()
        if bad:
            more = ", …" if len(bad) > 5 else ""
            raise ValueError(
                f"logits must be finite, got NaN or infinity in {len(bad)} of {len(logits)} samples: "
                f"{', '.join(map(str, bad[:5]))}{more}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def predicted(self) -> Tensor:
        """The class with the largest logit, int64 ``[N]``; of equal ones the first."""
        return self.logits.argmax(dim=1)

    @property
    def correct(self) -> Tensor:
        """Whether the predicted class is the true one, bool ``[N]``."""
        return self.predicted == self.labels

    def take(self, index: Tensor) -> "Predictions":
        """Only the samples ``index``."""
        return Predictions(self.logits[index], self.labels[index])


def predictions(
    network: nn.Module,
    split: Split,
    augment: Augment,
    *,
    batch: int = 200,
    workers: int = 0,
    device: torch.device | str | None = None,
    output: Output | None = None,
    progress: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> Predictions:
    """Logits, float32 on the CPU, of every sample in the order of ``split``, in evaluation mode and without gradients.

    Every module of ``network`` gets its own mode back. Samples go to ``device``, by default to that of the network, in the
    network's precision. ``output`` says which part of what the network returns holds the logits. ``progress`` wraps the numbers
    of the batches.
    """
    if len(split) == 0:
        raise ValueError("split must hold at least 1 sample, it has none")
    loader = Loader(split, augment, batch=batch, shuffle=False, drop_last=False, workers=workers)
    place, dtype = _place(network)
    place = place if device is None else torch.device(device)
    logits, labels = [], []
    with evaluation_mode(network), torch.no_grad():
        for _, (x, y) in zip(progress(range(len(loader))), loader, strict=True):
            rows = logits_of(network(x.to(place, dtype)), output)
            logits.append(rows.float().cpu())
            labels.append(y)
    return Predictions(torch.cat(logits), torch.cat(labels))


def _place(network: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Where the network's first floating-point weight is, and its precision."""
    for weight in chain(network.parameters(), network.buffers()):
        if weight.is_floating_point():
            return weight.device, weight.dtype
    return torch.device("cpu"), torch.float32
