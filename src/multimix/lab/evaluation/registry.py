"""All measures by name. A new one is a file with a function decorated by ``measure``, imported here."""

from ...checks import nearest
from . import calibration, corruption, error, gradient_norm, localization, speech, training_time, transfer  # noqa: F401
from .base import COUNTS, MEASURES, Measure

__all__ = ["COUNTS", "MEASURES", "measure_named"]


def measure_named(name: str) -> Measure:
    """The measure called ``name``."""
    if name not in MEASURES:
        raise ValueError(f"no measure {name!r}{nearest(name, MEASURES)}; there are {', '.join(MEASURES)}")
    return MEASURES[name]
