"""All mixing methods, one file or folder each; :mod:`.registry` finds them by name."""

from .base import Method
from .one_of import OneOf
from .path import PairMethod
from .registry import create, register, to_dict

# Made by tools/generate.py: the methods in the order in which they are listed, new ones last.
# <methods>
# isort: off
from .no_mix import NoMix
from .cutout import Cutout
from .input_mixup import InputMixup
from .manifold_mixup import ManifoldMixup
from .cutmix import CutMix
from .fmix import FMix
from .puzzlemix.method import PuzzleMix
from .comixup.method import CoMixup
from .saliency_mix import SaliencyMix
from .style.stylemix import StyleMix
from .style.stylecutmix import StyleCutMix
from .recursive_mix import RecursiveMix
from .align_mixup import AlignMixup
from .sage import SAGE
from .sagemix.method import SageMix
from .samix.method import SAMix
from .resize_mix import ResizeMix
from .grid_mix import GridMix
from .smooth_mix import SmoothMix
from .attentive_mix import AttentiveMix
from .guided_mixup import GuidedMixup
# isort: on

__all__ = [
    "SAGE",
    "AlignMixup",
    "AttentiveMix",
    "CoMixup",
    "CutMix",
    "Cutout",
    "FMix",
    "GridMix",
    "GuidedMixup",
    "InputMixup",
    "ManifoldMixup",
    "Method",
    "NoMix",
    "OneOf",
    "PairMethod",
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
    "register",
    "to_dict",
]
# </methods>
