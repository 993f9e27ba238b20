"""Everything computed from finished runs: tables, findings, figures, and pages.

Stored rows become data frames in :mod:`.frame`; every number, sentence, figure, and page follows
from those.
"""
