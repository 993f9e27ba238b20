"""`multimix report`: one page per study of finished runs, and its figures as files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...methods import Cutout, NoMix
from ..evaluation.kept import collected
from ..evaluation.subject import run_subject
from ..recipes import RECIPES, Recipe
from ..results import make_folder, write_atomically
from ..sweep.command import sweep_figures, sweep_sheets
from ..sweep.compare import comparison
from ..sweep.figures import figures
from ..sweep.plan import Entry
from ..sweep.sheets import sheets
from ..sweep.stored import read_plan
from ..terminal import note
from ..training.run import RESULTS
from .page import Costs, page
from .samples import first_batch, plain_picture, samples_picture
from .study import Study, studies

Progress = Callable[[Sequence[Study]], Iterable[Study]]


class Written(NamedTuple):
    """A page and its figures."""

    page: Path
    figures: list[Path]


def reports(
    places: Sequence[str | Path],
    *,
    out: str | Path,
    data: str | Path | None,
    recipes: Mapping[str, Recipe] = RECIPES,
    progress: Progress = iter,
) -> list[Written]:
    """A page for every recipe and scale among the finished runs in ``places``; ``data`` None leaves mixed samples out."""
    rows = collected(places, note)
    if not rows:
        raise ValueError(f"there are no finished runs in {', '.join(map(str, places))}; multimix train makes some")
    command = " ".join(["multimix report", *(Path(place).name or str(place) for place in places)])
    written = []
    for study in progress(studies(rows, recipes)):
        pictures = [] if data is None else _samples(study, Path(data))
        made = page(study, _costs(study, places, recipes), pictures, command)
        folder = Path(out) / study.name
        make_folder(folder)
        target = Path(out) / f"{study.name}.html"
        write_atomically(target, made.html.encode())
        for name, content in made.files.items():
            write_atomically(folder / name, content)
        written.append(Written(target, [folder / name for name in made.files]))
    return written


def _costs(study: Study, places: Sequence[str | Path], recipes: Mapping[str, Recipe]) -> Costs:
    """What sweeps among the places compare; without one, all lines as they are."""
    for place in map(Path, places):
        if (place / RESULTS).exists() and read_plan(place, note):
            title = study.recipe.title
            own = [sheet for sheet in sweep_sheets(place, study.rows, recipes) if sheet.title.startswith(f"{title},")]
            prefix = f"{study.recipe.name}/{study.scale}/"
            drawn = sweep_figures(place, study.rows, recipes)
            chosen = {name.removeprefix(prefix): content for name, content in drawn.items() if name.startswith(prefix)}
            if own:
                return Costs(own, chosen)
    entries = [Entry("steps", row["arm"], row["k"], row["seed"], row["digest"]) for row in study.rows]
    found = comparison(study.recipe, study.scale, study.rows, entries)
    return Costs(sheets(found), figures(found, stem="cost")) if len(study.lines) > 1 else Costs((), {})


def _samples(study: Study, data: Path) -> list[tuple[str, bytes]]:
    """Pictures of the first update of the first seed of every line; none where the data are not there, which is said."""
    found = []
    for line in study.lines:
        row = study.row(line)
        try:
            subject = run_subject(row["place"], data)
            train = subject.parts().train
        except (ValueError, OSError) as error:
            note(f"no mixed samples of {line.label}: {error}")
            continue
        if subject.settings is None or train is None:
            note(f"no mixed samples of {line.label}: its training data are not in {data}")
            continue
        batch = first_batch(subject.settings, row["seed"], train)
        classes = train.classes
        title = f"{line.label}, seed {row['seed']}, first update"
        if isinstance(subject.settings.method, NoMix | Cutout):
            found.append((f"{title}: samples as the network saw them", plain_picture(batch, subject.settings, classes)))
        elif batch.layer is not None:
            found.append(
                (f"{title}: pairs that were mixed at layer {batch.layer}", samples_picture(batch, subject.settings, classes))
            )
        else:
            words = f"{title}: a sample, its mixtures in ascending order of λ, its partner"
            found.append((words, samples_picture(batch, subject.settings, classes)))
    return found
