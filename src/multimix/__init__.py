"""multimix: K ordered interpolations of every pair, for every mixup method and any model."""

from .drop_in import Mix
from .forward import mixed_chunks, mixed_forward, mixed_logits, mixed_loss, mixed_terms
from .hooks import MixingError, MixPoints
from .loss import mixed_accuracy, soft_cross_entropy, softmax_bce
from .methods import (
    METHODS,
    SAGE,
    AlignMixup,
    AttentiveMix,
    CoMixup,
    CutMix,
    Cutout,
    FMix,
    GridMix,
    GuidedMixup,
    InputMixup,
    ManifoldMixup,
    Method,
    NoMix,
    OneOf,
    PairMethod,
    PathMethod,
    PuzzleMix,
    RecursiveMix,
    ResizeMix,
    SageMix,
    SaliencyMix,
    SAMix,
    SmoothMix,
    StyleCutMix,
    StyleMix,
    create,
)
from .methods.comixup.plan import GroupPlan
from .mixing import mix
from .plan import PairPlan, Plan
from .saliency import input_saliency
from .sampling import random_partner, sample_path
from .target import smoothed, soft_target
from .warmup import warmup

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "SAGE",
    "AlignMixup",
    "AttentiveMix",
    "CoMixup",
    "CutMix",
    "Cutout",
    "FMix",
    "GridMix",
    "GroupPlan",
    "GuidedMixup",
    "InputMixup",
    "ManifoldMixup",
    "Method",
    "Mix",
    "MixPoints",
    "MixingError",
    "NoMix",
    "OneOf",
    "PairMethod",
    "PairPlan",
    "PathMethod",
    "Plan",
    "PuzzleMix",
    "RecursiveMix",
    "ResizeMix",
    "SAMix",
    "SageMix",
    "SaliencyMix",
    "SmoothMix",
    "StyleCutMix",
    "StyleMix",
    "create",
    "input_saliency",
    "mix",
    "mixed_accuracy",
    "mixed_chunks",
    "mixed_forward",
    "mixed_logits",
    "mixed_loss",
    "mixed_terms",
    "random_partner",
    "sample_path",
    "smoothed",
    "soft_cross_entropy",
    "soft_target",
    "softmax_bce",
    "warmup",
]
