"""Measures of trained networks: one file each, a runner that applies them to runs, and a cache of what was measured."""
