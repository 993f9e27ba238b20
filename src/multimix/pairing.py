"""Who is mixed with whom."""

import torch
from torch import Generator, Tensor

from .generator import resolved


def random_partner(batch: int, *, derange: bool = False, generator: Generator | None = None) -> Tensor:
    """``partner [B]``: a uniformly random permutation of the batch; sample ``i`` is mixed with sample ``partner[i]``.

    A permutation has one fixed point on average: that row is paired with itself and stays as it is. With ``derange`` the
    permutation is uniform among those without fixed points (a batch of one is still its own partner).
    """
    if batch < 1:
        raise ValueError(f"a batch must hold at least 1 sample, got {batch}")
    generator = resolved(generator)
    partner = torch.randperm(batch, generator=generator, device="cpu")
    # Rejection keeps the law uniform; about e = 2.7 tries on average.
    while derange and batch > 1 and bool((partner == torch.arange(batch, device="cpu")).any()):
        partner = torch.randperm(batch, generator=generator, device="cpu")
    return partner


def checked_partner(partner: Tensor, batch: int) -> Tensor:
    """``partner`` as a CPU index tensor, or one sentence on what is wrong with it."""
    partner = torch.as_tensor(partner, device="cpu")
    if partner.shape != (batch,) or partner.is_floating_point() or partner.dtype == torch.bool:
        raise ValueError(f"partner must hold one index per sample, shape [{batch}], got {partner.dtype} {list(partner.shape)}")
    if int(partner.min()) < 0 or int(partner.max()) >= batch:
        raise ValueError(f"partner must index the batch, 0 to {batch - 1}, got {int(partner.min())} to {int(partner.max())}")
    return partner.long()
