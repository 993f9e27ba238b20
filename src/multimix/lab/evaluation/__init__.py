"""Evaluators applied to runs: what is measured on which checkpoint, kept beside it, and collected for tables and reports."""
