"""What a mask means: boxes, grey fields and their thresholds."""
