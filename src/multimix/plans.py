"""Plan classes, for method authors and for training loops that apply plans directly."""

from .core.mixing import mix
from .core.plan import MaskPlan, PairPlan, Plan, SharePlan
from .geometry.boxes import BoxPlan
from .methods.comixup.method import GroupPlan
from .output import run_plan

__all__ = ["BoxPlan", "GroupPlan", "MaskPlan", "PairPlan", "Plan", "SharePlan", "mix", "run_plan"]
