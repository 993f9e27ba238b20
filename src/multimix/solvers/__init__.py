"""Exact masks and block moves: the energy, the parametric cut that minimises it, the assignment of blocks."""
