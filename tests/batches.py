"""Batches as methods see them, for tests that call a method's own functions."""

from multimix.batch import Batch, Mixed
from oracles import seeded


def batch(model, x, y, generator=None, **given):
    return Batch(model, x, y, y, generator or seeded(0), given)


def history_after(plan, x, target, logits):
    """What is kept of a batch about which the model said ``logits``."""
    mixed = Mixed(batch(None, x, target), plan)
    vars(mixed).update(target=target, logits=logits)
    return mixed.next_history()
