"""What trained networks are worth. A new measure is a file with a function decorated by ``measure``, imported here."""

from . import background, calibration, corruption, error, gradient_norm, localization, speech, training_time, transfer  # noqa: F401
from .base import COUNTS, MEASURES, Measure, measure_named

__all__ = ["COUNTS", "MEASURES", "Measure", "measure_named"]
