"""Masks: boxes, grids of blocks, thresholds of gray fields, resized and translated partners."""
