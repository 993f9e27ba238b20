"""bfloat16 on CPUs without instructions for it, where torch convolves one number at a time: five times the time of float32."""

from collections.abc import Callable
from types import MethodType

import torch
from torch import Tensor, nn
from torch.nn import functional


def is_native() -> bool:
    """Whether torch has kernels for convolutions in bfloat16 on this CPU."""
    return bool(torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())  # type: ignore[no-untyped-call]


def convolve_in_float32(network: nn.Module) -> None:
    """Make convolutions of images take and return what they would in bfloat16, and compute in float32 in between.

    A kernel for bfloat16 does the same inside: it multiplies numbers of 8 bits exactly and adds them up in float32. So results
    differ by the order of the sums at most, in both passes.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and type(module)._conv_forward is _plain:
            module._conv_forward = MethodType(_conv_forward, module)  # type: ignore[method-assign]


_plain: Callable[..., Tensor] = nn.Conv2d._conv_forward


def _conv_forward(self: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # Named as what it stands for, so that a network that was pickled is loaded with torch's own.
    if not torch.is_autocast_enabled("cpu"):
        return _plain(self, x, weight, bias)
    x, weight, bias = _rounded(x), _rounded(weight), None if bias is None else _rounded(bias)
    with torch.autocast("cpu", enabled=False):
        if not _has_one_place(self, x):
            return _plain(self, x, weight, bias).bfloat16()
        top, left = (int(side) for side in self.padding)
        # The rest of the kernel lies on the padding, and would take 20 times as long as this part.
        seen = weight[..., top : top + x.shape[-2], left : left + x.shape[-1]]
        return functional.conv2d(x, seen, bias, groups=self.groups).bfloat16()


def _rounded(z: Tensor) -> Tensor:
    return z.bfloat16().float()


def _has_one_place(conv: nn.Conv2d, x: Tensor) -> bool:
    """Whether the kernel is applied in one place only, reaches all of ``x`` there, and sees zeros around it."""
    if conv.padding_mode != "zeros" or isinstance(conv.padding, str) or conv.dilation != (1, 1):
        return False
    sizes = zip(x.shape[-2:], conv.kernel_size, conv.padding, conv.stride, strict=True)
    return all(size + padding <= kernel <= size + 2 * padding < kernel + stride for size, kernel, padding, stride in sizes)
