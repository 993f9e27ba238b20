"""Batches as methods see them, for tests that call a method's own functions."""

from types import SimpleNamespace

from multimix.batch import Batch
from oracles import seeded


def batch(model, x, y, generator=None, **given):
    return Batch(model, x, y, y, generator or seeded(0), given)


def history_after(method, plan, x, target, logits):
    """What the method keeps of a batch about which the model said ``logits``."""
    mixed = SimpleNamespace(plan=plan, target=target, logits=logits)
    return method.next_history(batch(None, x, target), mixed)
