"""Plans of every method from fixed seeds, as arrays that are compared with stored values.

``python tests/frozen.py FILE`` stores the sample that ``test_frozen.py`` compares.
"""

import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import multimix as mm
from multimix.methods.samix.block import MixBlock
from multimix.methods.style.small_pair import small_style_pair

BATCH, CLASSES, POINTS = 6, 5, 48
SIZES = ((32, 32), (17, 23))
STORED = Path(__file__).parent / "frozen.npz"

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "none": [{}],
    "cutout": [{}, {"length": 6, "holes": 2, "fill": 0.7}],
    "mixup": [{}, {"per_pair": True, "derange": True}, {"sampler": "stratified", "alpha": 0.2}],
    "manifoldmix": [{"layers": (None,)}],
    "cutmix": [{}, {"box": "shift"}, {"grid": "integer", "per_pair": True}],
    "fmix": [{}, {"softness": 0.3, "per_pair": True}],
    "puzzlemix": [{"std": 0.25, "mean": 0.5}, {"transport": "none", "labels": 4}],
    "comixup": [{"part": 4}],
    "saliencymix": [{}, {"reference": True}, {"saliency_from": "gradient"}],
    "stylemix": [{"side": None}],
    "stylecutmix": [{"side": None}],
    "recursivemix": [{}, {"resize": "bilinear"}],
    "alignmixup": [{"layers": ("body",)}],
    "sage": [{}, {"bound": 1.0, "positions": 0.05, "stay": False}],
    "sagemix": [{}],
    "samix": [{"rescale_p": 1.0}],
    "resizemix": [{}, {"resize": "bilinear"}],
    "gridmix": [{}, {"crop": 1.0, "holes": 3}],
    "smoothmix": [{}, {"width": (0.25, 0.5)}],
    "attentivemix": [{}],
    "guidedmixup": [{}, {"pairing": "random", "blur_size": 3}],
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = nn.Conv2d(3, 8, 3, stride=4, padding=1)
        pool, head = nn.AdaptiveAvgPool2d(1), nn.Linear(8, CLASSES)
    return nn.Sequential(OrderedDict(body=body, pool=pool, flat=nn.Flatten(), head=head))


def make(name: str, options: dict[str, Any], k: int) -> Any:
    if name in ("stylemix", "stylecutmix"):
        options = {**options, "pair": small_style_pair(3, 8, generator=seeded(5))}
    if name == "samix":
        block = MixBlock(model(), "body", 8, generator=seeded(6)).eval()
        options = {**options, "block": block, "train_block": False, "clean_weight": 0.0}
    return mm.create(name, k=k, **options)


def record(name: str, options: dict[str, Any], k: int, seed: int, size: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return partner, λ, mask, mixed batch and mixed target of one plan."""
    draws = seeded(1000 + seed)
    shape = (BATCH, POINTS, 3) if name == "sagemix" else (BATCH, 3, *size)
    x = torch.rand(shape, generator=draws)
    salient = torch.rand(BATCH, *(shape[1:2] if name == "sagemix" else size), generator=draws) ** 4 + 1e-3
    method = make(name, options, k)
    given = dict.fromkeys(method.traits.needs, salient)
    if name == "samix":
        given["features"] = torch.rand(BATCH, 8, 5, 7, generator=draws)
    for past in method.traits.history:
        given[past] = x.flip(0) if past == "history_x" else torch.eye(CLASSES)[torch.arange(BATCH) % CLASSES].flip(0)
    given.pop("history_logits", None)
    plan = method.plan(x, generator=seeded(seed), **given)
    z = x if plan.layer is None else torch.rand(BATCH, 4, 5, 6, generator=draws)
    values = {"partner": plan.partner, "lam": plan.lam, "mix": plan.mix(z)}
    if plan.layer is None:
        values["mask"] = plan.mask
    values["target"] = plan.mix_target(torch.arange(BATCH) % CLASSES, CLASSES)
    return {key: value.detach().double().numpy() for key, value in values.items()}


def thinned(values: np.ndarray, count: int = 24) -> np.ndarray:
    """A few values at fixed random places, so that the stored file stays small."""
    flat = values.reshape(-1)
    if len(flat) <= count:
        return flat
    places = np.random.default_rng(len(flat)).choice(len(flat), count, replace=False)
    return flat[np.sort(places)]


def sample(name: str) -> dict[str, np.ndarray]:
    """Records of a method for K = 1 and 5 and all sizes: λ and partner in full, the rest thinned."""
    parts: dict[str, list[np.ndarray]] = {}
    for options in OPTIONS[name]:
        for k in (1, 5):
            for size in SIZES[:1] if name == "sagemix" else SIZES:
                for part, array in record(name, options, k, 0, size).items():
                    is_full = part in ("partner", "lam")
                    parts.setdefault(part, []).append(array.reshape(-1) if is_full else thinned(array))
    return {f"{name}-{part}": np.concatenate(arrays) for part, arrays in parts.items()}


if __name__ == "__main__":
    np.savez_compressed(sys.argv[1], **{key: array for name in OPTIONS for key, array in sample(name).items()})
