"""Batches as methods see them, for tests that call ``inputs`` and ``loss`` of a method."""

from multimix.core.batch import Batch, MixedBatch
from oracles import seeded


def batch(model, x, y, generator=None, **given):
    return Batch(model, x, y, y, generator or seeded(0), given)


def history_after(plan, x, target, logits):
    """The history that a batch with these logits leaves for the next one."""
    return MixedBatch(batch(None, x, target), plan, logits, target).next_history()
