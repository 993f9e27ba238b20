"""The variance of multi-mix's gradient at fixed weights: measured, by formula and exact, for any model and data."""

from .gradients import Gradients
from .measure import MeasuredVariance, Pairing, measure_variance
from .parts import enumerate_pairs, sampled_components, squared_norm, trace_variance
from .theory import Components, Enumeration, Estimate, Range, crossover, large_batch_variance, multimix_variance

__all__ = [
    "Components",
    "Enumeration",
    "Estimate",
    "Gradients",
    "MeasuredVariance",
    "Pairing",
    "Range",
    "crossover",
    "enumerate_pairs",
    "large_batch_variance",
    "measure_variance",
    "multimix_variance",
    "sampled_components",
    "squared_norm",
    "trace_variance",
]
