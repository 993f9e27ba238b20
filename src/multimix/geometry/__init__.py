"""Mask geometry: boxes, block grids, thresholded fields, resized and translated partners."""
