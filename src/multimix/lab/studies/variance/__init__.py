"""The variance of multi-mix's gradient at fixed weights: measured, by formula and exactly, for any model and data."""

from ...study import Written
from .closed_form import Components, Estimate, Range, crossover, large_batch_variance, multimix_variance
from .enumeration import enumerated
from .estimators import squared_norm, trace_variance
from .gradients import Gradients
from .measure import Measured, Pairing, measured
from .permutation import Enumeration, table_enumeration
from .sampling import Sampled, sampled_components
from .study import variance

__all__ = [
    "Components",
    "Enumeration",
    "Estimate",
    "Gradients",
    "Measured",
    "Pairing",
    "Range",
    "Sampled",
    "Written",
    "crossover",
    "enumerated",
    "large_batch_variance",
    "measured",
    "multimix_variance",
    "sampled_components",
    "squared_norm",
    "table_enumeration",
    "trace_variance",
    "variance",
]
