"""The birds of the paper's Fig. 5 as stored beside the runs."""

from pathlib import Path

from ..evaluation.cache import PICTURES
from ..recipes import recipe
from ..recipes.base import Follow, Scale
from .paper import Exhibit
from .paper_table import with_own_settings
from .rows import Rows, aggregate

BIRDS = "birds.png"


def bird_strips(exhibit: Exhibit, scale: Scale, rows: Rows, follow: Follow = "text") -> dict[str, bytes]:
    """The birds of the paper's Fig. 5 as stored beside the runs: for every row of it those of the first seed that has them."""
    strips: dict[str, bytes] = {}
    for name in exhibit.pictures_of:
        lines = {(line.arm, line.k): line for line in with_own_settings(aggregate(recipe(name, follow), scale, rows))}
        for row in exhibit.rows:
            runs = lines[row.key].runs.values() if row.key in lines else ()
            # Known to the run: those of weights that it no longer has may still lie in its folder.
            places = [Path(run.row["place"]) for run in runs if "transfer" in run.row["evaluations"]]
            files = [place / PICTURES / "transfer" / BIRDS for place in places]
            first = next((file for file in files if file.exists()), None)
            if first is not None:
                strips[row.label] = first.read_bytes()
    return strips
