"""The kernels of :mod:`multimix.one_pass`, compiled when this module is imported.

They are given addresses, since making NumPy's arrays of tensors takes longer than half of the work. A pair is followed by that
of the partner, which is in the cache then. The largest number is looked for while mixing, in each of the K steps: beside
memory it costs nothing, and a pass of its own made K = 1 slower by a tenth and K = 5 no faster. Bits are cast to 32 again after
each operation: numba computes with 64, which takes three times as long.
"""

from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

from .compiled import inner, kernel_for

WITHOUT_SIGN, ALL = np.uint32(0x7FFFFFFF), np.uint32(0xFFFFFFFF)


def _pointer(context: Any, address: Any) -> Any:
    """The pointer to an address."""
    return types.voidptr(address), lambda _, builder, __, given: builder.inttoptr(given[0], cgutils.voidptr_t)


at: Any = intrinsic(_pointer)  # which is called with the address alone


@inner
def as_number(bits: Any) -> Any:
    """The float32 of these bits: infinity has larger ones than all numbers, NaN larger than infinity."""
    found = np.empty(1, np.uint32)
    found[0] = bits
    return found.view(np.float32)[0]


def numbers(count: int) -> str:
    """The signature of a kernel with so many whole numbers, for what comes out as float32."""
    return f"float32({', '.join(['int64'] * count)})"


@kernel_for(numbers(2))
def largest(x: int, count: int) -> Any:
    """The largest of ``count`` numbers without their signs, NaN if there is one."""
    bits, most = carray(at(x), count, np.uint32), np.uint32(0)
    for i in range(count):
        b = np.uint32(bits[i] & WITHOUT_SIGN)
        most = b if b > most else most
    return as_number(most)


@inner
def are_classes(label: Any, classes: int) -> Any:
    """Whether all are indices of so many classes."""
    low = high = label[0]
    for i in range(label.shape[0]):
        low, high = min(low, label[i]), max(high, label[i])
    return low >= 0 and high < classes


@inner
def fill_target(target: Any, label: Any, i: int, j: int, row: int, lam: float) -> None:
    """Row ``row`` of ``target [K·B, C]``: 1 − λ for the class of sample ``i`` and λ for that of its partner ``j``."""
    for c in range(target.shape[1]):
        target[row, c] = 0
    target[row, label[i]] = np.float32(1) - np.float32(lam)
    target[row, label[j]] += np.float32(lam)


@kernel_for(numbers(12), fastmath={"contract"})
def blend(
    z: int,
    rows: int,
    pairs: int,
    labels: int,
    targets: int,
    classes: int,
    batch: int,
    length: int,
    steps: int,
    lam: int,
    to_step: int,
    to_pair: int,
) -> Any:
    """``largest`` of ``z [B, length]``; ``rows [K·B, length]`` as torch.lerp fills it, exact at both ends.

    ``targets [K·B, classes]`` are filled unless there are no classes; a label that is none makes it NaN, and nothing is filled.
    ``pairs`` and ``labels [B]`` are int64; ``lam [K, B]`` is float64, with so many numbers from a step and from a pair to the
    next.
    """
    label, target = carray(at(labels), batch, np.int64), carray(at(targets), (steps * batch, classes), np.float32)
    if classes > 0 and not are_classes(label, classes):
        return np.float32(np.nan)
    own, bits = carray(at(z), (batch, length), np.float32), carray(at(z), (batch, length), np.uint32)
    out, last = carray(at(rows), (steps * batch, length), np.float32), (steps - 1) * to_step + (batch - 1) * to_pair
    share = carray(at(lam), last + 1, np.float64)
    partner, seen, most = carray(at(pairs), batch, np.int64), np.zeros(batch, np.bool_), np.uint32(0)
    for start in range(batch):
        i = start
        while not seen[i]:
            seen[i] = True
            j = partner[i]
            for k in range(steps):
                w = np.float32(share[k * to_step + i * to_pair])
                row, found = k * batch + i, np.uint32(0)
                if classes > 0:
                    fill_target(target, label, i, j, row, w)
                # From the nearer end.
                base, w = (i, w) if w < np.float32(0.5) else (j, w - np.float32(1))
                for n in range(length):
                    b = np.uint32(bits[i, n] & WITHOUT_SIGN)
                    found = b if b > found else found
                    out[row, n] = own[base, n] + w * (own[j, n] - own[i, n])
                most = found if found > most else most
            i = j
    return as_number(most)


@kernel_for("void(int64, int64, int64, float64)")
def blend_reversed(x: int, batch: int, length: int, own: float) -> None:
    """``x [B, length]``, B even, mixed in place with itself in reverse order; every product and sum is rounded by itself."""
    rows, own, rest = carray(at(x), (batch, length), np.float32), np.float32(own), np.float32(1 - own)
    for i in range(batch // 2):
        j = batch - i - 1
        for n in range(length):
            a, b = rows[i, n], rows[j, n]
            rows[i, n] = a * own + b * rest
            rows[j, n] = b * own + a * rest


@inner
def show_box(mask: Any, low: Any, high: Any, height: int, width: int, unit: int) -> None:
    """All bits of ``mask [places · unit]`` inside the box ``low, high [d]``, d at most 3, and none outside."""
    d = low.shape[0]
    first, last = (low[0], high[0]) if d == 3 else (0, 1)
    top, bottom = (low[d - 2], high[d - 2]) if d >= 2 else (0, 1)
    mask[:] = 0
    for z in range(first, last):
        for y in range(top, bottom):
            row = (z * height + y) * width
            mask[(row + low[d - 1]) * unit : (row + high[d - 1]) * unit] = ALL


@kernel_for(numbers(17))
def paste(
    z: int,
    rows: int,
    pairs: int,
    labels: int,
    targets: int,
    classes: int,
    batch: int,
    planes: int,
    length: int,
    steps: int,
    lows: int,
    highs: int,
    boxes: int,
    axes: int,
    height: int,
    width: int,
    unit: int,
) -> Any:
    """``largest`` of ``z [B, planes, length]``; ``rows [K·B, planes, length]`` are the partner in the box and ``z`` around it.

    ``length`` is places · unit. ``lows`` and ``highs [K, boxes, axes]``, with one box or B, are int64. Targets as in ``blend``.
    """
    label, target = carray(at(labels), batch, np.int64), carray(at(targets), (steps * batch, classes), np.float32)
    if classes > 0 and not are_classes(label, classes):
        return np.float32(np.nan)
    own, out = carray(at(z), (batch, planes, length), np.uint32), carray(at(rows), (steps * batch, planes, length), np.uint32)
    low, high = carray(at(lows), (steps, boxes, axes), np.int64), carray(at(highs), (steps, boxes, axes), np.int64)
    partner, seen, most = carray(at(pairs), batch, np.int64), np.zeros(batch, np.bool_), np.uint32(0)
    mask = np.empty((steps, length), np.uint32)
    for k in range(steps):
        show_box(mask[k], low[k, 0], high[k, 0], height, width, unit)
    for start in range(batch):
        i = start
        while not seen[i]:
            seen[i] = True
            j = partner[i]
            for k in range(steps):
                if boxes > 1:
                    show_box(mask[k], low[k, i], high[k, i], height, width, unit)
                row, found = k * batch + i, np.uint32(0)
                if classes > 0:
                    box, places = i % boxes, length // unit
                    fill_target(target, label, i, j, row, np.prod(high[k, box] - low[k, box]) / places)
                for c in range(planes):
                    for n in range(length):
                        a, b = own[i, c, n], own[j, c, n]
                        size = np.uint32(a & WITHOUT_SIGN)
                        found = size if size > found else found
                        out[row, c, n] = np.uint32(a ^ ((a ^ b) & mask[k, n]))
                most = found if found > most else most
            i = j
    return as_number(most)
