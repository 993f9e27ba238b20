"""Compare mixing methods on a user's data within a time budget."""

from .image_folder import compare_data
from .run import ComparisonResult, compare_folder

__all__ = ["ComparisonResult", "compare_data", "compare_folder"]
