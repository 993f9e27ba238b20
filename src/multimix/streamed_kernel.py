"""Mixing straight into memory, past the cache, compiled: what no cache could hold need not be read before it is written."""

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic
from torch import Tensor

from .compiled import in_chunks, inner, kernel, noticed

LEAST = 1 << 20  # numbers of a result, below which a second thread costs more than it saves
LINE = 64  # bytes that are written at once, where an address is a multiple of so many


def _lerp_line(context: Any, own: Any, pair: Any, share: Any, out: Any, half: Any) -> Any:
    """One line as torch.lerp makes it: from addresses, for numbers of the type of ``half``."""

    def lines(context: Any, builder: Any, signature: Any, given: Any) -> None:
        number = context.get_value_type(half)
        size = half.bitwidth // 8
        line = ir.VectorType(number, LINE // size)
        places = [builder.inttoptr(address, line.as_pointer()) for address in given[:4]]
        a, b, w = (builder.load(place, align=size) for place in places[:3])
        one, middle = (ir.Constant(line, [ir.Constant(number, value)] * line.count) for value in (1.0, 0.5))
        is_near = builder.fcmp_ordered("<", w, middle)
        base, weight = builder.select(is_near, a, b), builder.select(is_near, w, builder.fsub(w, one))
        moved = builder.fmul(weight, builder.fsub(b, a), flags=["contract"])
        _store(builder, builder.fadd(base, moved, flags=["contract"]), places[3])

    return types.void(own, pair, share, out, half), lines


def _copy_line(context: Any, source: Any, out: Any) -> Any:
    """One line as it is, from addresses."""

    def lines(context: Any, builder: Any, signature: Any, given: Any) -> None:
        line = ir.VectorType(ir.IntType(8), LINE).as_pointer()
        origin, place = (builder.inttoptr(address, line) for address in given)
        _store(builder, builder.load(origin, align=1), place)

    return types.void(source, out), lines


def _store(builder: Any, line: Any, place: Any) -> None:
    """Write past the cache."""
    stored = builder.store(line, place, align=LINE)
    stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))


def _fence(context: Any) -> Any:
    return types.void(), lambda _, builder, __, ___: builder.fence("seq_cst")


lerp_line: Any = intrinsic(_lerp_line)
copy_line: Any = intrinsic(_copy_line)
fence: Any = intrinsic(_fence)  # what was written past the cache is seen by all threads from here on


@inner
def whole_lines(out: Any) -> tuple[int, int]:
    """Where in ``out [n]`` whole lines begin and end; none do where numbers do not begin at multiples of their size."""
    n, size, to = len(out), out.itemsize, out.ctypes.data
    head = n if to % size else min(n, (-to) % LINE // size)
    return head, n - (n - head) % (LINE // size)


@partial(inner, fastmath={"contract"})  # as in lines: what a number becomes must not depend on where it lies
def lerp_row(own: Any, pair: Any, share: Any, out: Any) -> None:
    """``out [n] = (1 − share) own + share · pair`` from the nearer end, all of one type, each number beside the next."""
    one, half = out.dtype.type(1), out.dtype.type(0.5)
    n, size, to = len(out), out.itemsize, out.ctypes.data
    head, lined = whole_lines(out)
    for part in ((0, head), (lined, n)):
        for x in range(part[0], part[1]):
            a, b, w = own[x], pair[x], share[x]
            out[x] = a + w * (b - a) if w < half else b + (w - one) * (b - a)
    a, b, w = own.ctypes.data, pair.ctypes.data, share.ctypes.data
    for x in range(head * size, lined * size, LINE):
        lerp_line(a + x, b + x, w + x, to + x, half)


@inner
def copy_row(source: Any, out: Any) -> None:
    """``out [n] = source [n]``, of one type, each number beside the next."""
    size, to = out.itemsize, out.ctypes.data
    head, lined = whole_lines(out)
    out[:head] = source[:head]
    out[lined:] = source[lined:]
    origin = source.ctypes.data
    for x in range(head * size, lined * size, LINE):
        copy_line(origin + x, to + x)


def lerp_pairs(z: Tensor, partner: Tensor, order: list[int], share: Tensor, out: Tensor) -> None:
    """Fill ``out [K·B, C, *size]`` with ``z`` and ``z[partner]`` mixed by ``share [K, 1 or B, 1, *size]``, in this ``order``.

    All are contiguous, on the CPU and of one type.
    """
    batch, channels = z.shape[:2]
    steps, paths = share.shape[:2]
    arrays = (
        z.detach().view(batch, channels, -1).numpy(),
        partner.contiguous().numpy(),
        np.array(order, np.int64),
        share.view(steps, paths, -1).numpy(),
        out.detach().view(steps, batch, channels, -1).numpy(),
    )
    with noticed(fill_pairs):
        in_chunks(lambda start, stop: fill_pairs(*arrays, start, stop), batch, None, max(1, LEAST * batch // out.numel()))


@kernel
def fill_pairs(z: Any, partner: Any, order: Any, share: Any, out: Any, start: int, stop: int) -> None:
    """The pairs ``order[start … stop − 1]``, each in all its steps while it is in the cache."""
    for i in order[start:stop]:
        for c in range(z.shape[1]):
            for k in range(len(share)):
                lerp_row(z[i, c], z[partner[i], c], share[k, i if share.shape[1] > 1 else 0], out[k, i, c])
    fence()
