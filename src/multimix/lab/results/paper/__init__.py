"""The paper's tables and figures with measured numbers, beside ours.

The paper's own numbering is not known here: they are counted in the order in which its measurements are named.
"""

from collections.abc import Mapping

from ....checks import nearest
from .base import Column, PaperTable, TableRow
from .errors import EFFECT_OF_K, ERRORS, IMAGENET, SPEECH, SPIRAL, STRATEGIES
from .evaluations import CALIBRATION, CORRUPTION, GRADIENT_NORM, LOCALIZATION, TRAINING_TIME, TRANSFER

__all__ = ["TABLES", "Column", "PaperTable", "TableRow", "paper_table"]

TABLES: Mapping[int, PaperTable] = {
    entry.number: entry
    for entry in (
        *(SPIRAL, ERRORS, IMAGENET, LOCALIZATION, CORRUPTION, TRANSFER),
        *(SPEECH, CALIBRATION, STRATEGIES, EFFECT_OF_K, TRAINING_TIME, GRADIENT_NORM),
    )
}


def paper_table(wanted: str) -> PaperTable:
    """The table with this number or name.

    >>> paper_table("8").name
    'calibration'
    """
    names = {name: entry for entry in TABLES.values() for name in (str(entry.number), entry.name)}
    if wanted.strip().lower() not in names:
        known = ", ".join(f"{entry.number} {entry.name}" for entry in TABLES.values())
        raise ValueError(f"no table {wanted!r}{nearest(wanted, names)}; there are {known}")
    return names[wanted.strip().lower()]
