"""Tables, findings, figures, and pages from finished runs.

:mod:`.frame` converts stored rows to data frames, from which all other modules compute.
"""
