"""multimix: K ordered interpolations of every pair, for every mixup method and any model."""

from .allocator import keep_memory
from .batch import mixed_forward
from .distributed import average_gradients, broadcast_networks
from .drop_in import Mix
from .forward import mixed_chunks, mixed_logits, mixed_loss, mixed_terms
from .hooks import MixingError, MixPoints
from .loss import mixed_accuracy, pair_loss, soft_cross_entropy, softmax_bce
from .methods import *  # noqa: F403  # one line per method, made by tools/generate.py
from .methods import __all__ as _method_names
from .methods.comixup.method import GroupPlan
from .mixing import exact_mix as mix
from .plan import PairPlan, Plan
from .pool import release_memory
from .saliency import input_saliency
from .sampling import random_partner, random_state, sample_path, set_random_state
from .target import smoothed, soft_target
from .warmup import warmup

__version__ = "0.1.0"

__all__ = [
    "GroupPlan",
    "Mix",
    "MixPoints",
    "MixingError",
    "PairPlan",
    "Plan",
    "average_gradients",
    "broadcast_networks",
    "input_saliency",
    "keep_memory",
    "mix",
    "mixed_accuracy",
    "mixed_chunks",
    "mixed_forward",
    "mixed_logits",
    "mixed_loss",
    "mixed_terms",
    "pair_loss",
    "random_partner",
    "random_state",
    "release_memory",
    "sample_path",
    "set_random_state",
    "smoothed",
    "soft_cross_entropy",
    "soft_target",
    "softmax_bce",
    "warmup",
]
__all__ += _method_names
