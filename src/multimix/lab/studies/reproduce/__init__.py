"""Reproduce the paper's tables and figures: plan, train, evaluate, and write one page."""
