"""Plans, for method authors and for loops that apply a plan themselves."""

from .core.mixing import mix
from .core.plan import MaskPlan, PairPlan, Plan, SharePlan
from .geometry.boxes import BoxPlan
from .methods.comixup.method import GroupPlan
from .output import run_plan

__all__ = ["BoxPlan", "GroupPlan", "MaskPlan", "PairPlan", "Plan", "SharePlan", "mix", "run_plan"]
