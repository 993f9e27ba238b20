"""The K steps of every method on two pictures."""

from .look import paper_interpolations, paper_samples, write_look, write_paper_figure
from .pictures import cat, dog

__all__ = ["cat", "dog", "paper_interpolations", "paper_samples", "write_look", "write_paper_figure"]
