"""Puzzle Mix: saliency, exact nested masks, and blocks that move."""
