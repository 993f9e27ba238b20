"""The smallest study on real images: every method at several K on scikit-learn's digits, paired over seeds."""

from ..files import StudyFiles
from .study import digits
from .train import Settings

__all__ = ["Settings", "StudyFiles", "digits"]
