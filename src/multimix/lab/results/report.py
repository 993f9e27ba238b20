"""One page per study of finished runs, and its figures as files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...methods import CoMixup, Cutout, NoMix
from ..evaluation.cache import collect_runs
from ..evaluation.subject import run_subject
from ..recipes import RECIPES, Recipe
from ..recipes.settings import Settings
from ..storage import make_folder, write_atomically
from ..sweep.plan import Entry
from ..terminal import note
from ..training.run import RESULTS
from .figures.samples import FirstBatch, first_batch, plain_picture, samples_picture
from .report_page import Costs, page
from .report_study import Study, studies
from .sweep_comparison import comparison
from .sweep_figures import figures
from .sweep_files import sweep_figures, sweep_tables
from .sweep_sheets import sheets

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
    if not places:
        raise ValueError("report needs the folder of results or of a run, such as multimix-runs")
    rows = collect_runs(places, note)
    if not rows:
        raise ValueError(f"there are no finished runs in {', '.join(map(str, places))}; multimix train makes some")
    command = " ".join(["multimix report", *(Path(place).name or str(place) for place in places)])
    written = []
    for study in progress(studies(rows, recipes)):
        pictures = [] if data is None else _samples(study, Path(data))
        made = page(study, _costs(study, places), pictures, command)
        folder = Path(out) / study.name
        make_folder(folder)
        target = Path(out) / f"{study.name}.html"
        write_atomically(target, made.html.encode())
        for name, content in made.files.items():
            write_atomically(folder / name, content)
        written.append(Written(target, [folder / name for name in made.files]))
    return written


def _costs(study: Study, places: Sequence[str | Path]) -> Costs:
    """What sweeps among the places compare; without one, the lines that differ by nothing but method and K."""
    for place in map(Path, places):
        if (place / RESULTS).exists():
            own = sweep_tables(place, study.rows, study.recipe, study.scale)
            if own:
                return Costs(own, sweep_figures(place, study.rows, study.recipe, study.scale))
    alike, others = study.alike()
    if len(alike) < 2:
        return Costs((), {})
    entries = [Entry("steps", line.arm, line.k, seed, line.digest) for line in alike for seed in line.seeds]
    found = comparison(study.recipe, study.scale, study.rows, entries)
    if others:
        words = ", ".join(study.label(line) for line in others)
        found = found._replace(notes=(*found.notes, f"left out, since more than method and K differ: {words}"))
    return Costs(sheets(found), figures(found, stem="cost"))


def _samples(study: Study, data: Path) -> list[tuple[str, bytes]]:
    """Pictures of the first update that mixes, for the first seed of every line; where data are missing, that is said once."""
    found = []
    missing: dict[str, list[str]] = {}
    for line in study.lines:
        row, words = study.row(line), study.label(line)
        try:
            subject = run_subject(row["place"], data)
            train = subject.parts().train
        except (ValueError, OSError) as error:
            missing.setdefault(str(error), []).append(words)
            continue
        if subject.settings is None or train is None:
            missing.setdefault(f"training data are not in {data}", []).append(words)
            continue
        batch = first_batch(subject.settings, row["seed"], train, processes=line.processes)
        found.append(_picture(batch, subject.settings, train.classes, f"{words}, seed {row['seed']}, {batch.update} update"))
    for why, lines in missing.items():
        note(f"no mixed samples of {', '.join(lines)}: {why}")
    return found


def _picture(batch: FirstBatch, settings: Settings, classes: tuple[str, ...], title: str) -> tuple[str, bytes]:
    if isinstance(settings.method, NoMix | Cutout):
        return f"{title}: samples as the network saw them", plain_picture(batch, settings, classes)
    if batch.layer is not None:
        return f"{title}: pairs that were mixed at layer {batch.layer}", samples_picture(batch, settings, classes)
    if isinstance(settings.method, CoMixup):
        words = "its mixtures, λ the share of all others, and what they hold most of besides"
        return f"{title}: a sample, {words}", samples_picture(batch, settings, classes)
    partner = "its partner" if batch.update == "first" else "its partner, of the update before"
    return f"{title}: a sample, its mixtures in ascending order of λ, {partner}", samples_picture(batch, settings, classes)
