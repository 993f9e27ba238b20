"""Figures: one file per subject; they draw what is given and read nothing."""
