"""The page of ``multimix demo``: accuracy on the noisy spiral, seed by seed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from ...images import read_image_grid
from ...recipes.base import Scale
from ...recipes.spiral import ARMS, COLLAPSED, K1, K5, NONE, SpiralArm, SpiralSettings
from ...storage import parse_json, write_files
from ...terminal import counted, note
from ..figures import PERCENT, Dot, dots, image_grid
from ..page import Code, Facts, Finding, Picture, Section, render_page
from ..stats import Paired, Summary, paired, summary
from ..style import svg
from ..tables import EMPTY, Column, Table, signed

# The demo is small enough for the small scale.
SCALES_BY_FILE: dict[str, tuple[Scale, ...]] = {"spiral.json": ("paper", "small"), "spiral-quick.json": ("smoke",)}
COLUMNS = {"arm": str, "seed": int, "right": int, "tested": int, "accuracy": float, "cpu_seconds": float}
BOUNDARY_SIDE = 2.3  # inches

# Fixed before the runs, for at least MIN_SEEDS seeds at the full settings. Gains and losses are in points of accuracy.
MIN_SEEDS, MIN_GAIN, MIN_WIN_RATE, MAX_LOSS, MAX_COLLAPSED_RATE = 20, 3.0, 0.75, 1.5, 0.05

PAPER_NOTE = "one run, generator and settings not published"
PAIRED_NOTE = (
    "Points of accuracy, seed by seed; all three trainings of a seed share data, initial weights and batches. Two-sided "
    f"p-values, not corrected for three comparisons. The paper's differences: {PAPER_NOTE}."
)
ACCURACY_CAPTION = "Every small dot is one seed. Intervals are cut off at 100 %."
EXPECTED_NOTE = "Fixed before these runs, from a study with another trainer. K = 5 above K = 1 was not expected."
MIXING = "layer 1 or 2, drawn for each batch; one permutation and one path of K shares per batch, Beta(alpha, alpha)"


class SpiralStudy(NamedTuple):
    """Stored runs of the demo.

    Args:
        settings: Settings of data and training.
        network: The network in words.
        frame: Columns arm, seed, right, tested, accuracy, cpu_seconds, and environment.
    """

    settings: SpiralSettings
    network: str
    frame: pd.DataFrame

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the file."""
        return list(self.frame.seed.unique())

    @property
    def summaries(self) -> dict[SpiralArm, Summary]:
        """Accuracy in percent by arm."""
        return {arm: summary(self.of(arm).accuracy.tolist()) for arm in ARMS}

    def of(self, arm: SpiralArm) -> pd.DataFrame:
        """Return the runs of an arm.

        Args:
            arm: The arm.
        """
        return self.frame[self.frame.arm == arm.name]

    def collapsed(self, arm: SpiralArm) -> int:
        """Return how many runs of an arm ended below :data:`COLLAPSED`.

        Args:
            arm: The arm.
        """
        return int((self.of(arm).accuracy < COLLAPSED).sum())


class Comparison(NamedTuple):
    """Accuracy of ``first − second`` over the same seeds, in points.

    Args:
        first: The arm.
        second: The arm that is subtracted.
        test: The paired test.
        differences: Differences by seed.
    """

    first: SpiralArm
    second: SpiralArm
    test: Paired
    differences: Sequence[float]

    @property
    def paper(self) -> float:
        """Difference of the paper's single runs."""
        return round(self.first.paper - self.second.paper, 2)


def read_spiral(path: Path) -> SpiralStudy:
    """Return the content of ``spiral.json``.

    Args:
        path: The file that ``multimix demo`` wrote.

    Raises:
        ValueError: If the file is damaged.
    """
    try:
        content = parse_json(path.read_bytes())
        frame = pd.DataFrame(content["rows"])
        frame = frame[list(COLUMNS)].astype(COLUMNS).assign(environment=list(map(_joined, frame["environment"])))
        accuracy = frame.pivot(index="seed", columns="arm", values="accuracy")[[arm.name for arm in ARMS]]
        if accuracy.empty or accuracy.isna().any(axis=None):
            raise ValueError("every arm needs the same seeds")
        return SpiralStudy(SpiralSettings(**content["settings"]), content["network"], frame)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        quick = " --quick" if "quick" in path.name else ""
        raise ValueError(f"{path} is damaged: multimix demo{quick} --out {path.parent} makes it again") from None


def spiral_frame(path: Path) -> pd.DataFrame:
    """Return the runs in ``spiral.json`` with the columns arm, seed, right, tested, accuracy, cpu_seconds.

    Args:
        path: The file that ``multimix demo`` wrote.
    """
    return read_spiral(path).frame[list(COLUMNS)]


def read_demo(folder: Path) -> dict[Scale, pd.DataFrame]:
    """Return the demo's runs by scale, without runs with other settings.

    Args:
        folder: The folder of ``multimix demo``.
    """
    frames: dict[Scale, pd.DataFrame] = {}
    for name, scales in SCALES_BY_FILE.items():
        if not (folder / name).exists():
            continue
        study = read_spiral(folder / name)
        epochs = SpiralSettings.epochs if "paper" in scales else study.settings.epochs
        if study.settings == replace(SpiralSettings(), epochs=epochs):
            frames |= dict.fromkeys(scales, study.frame[list(COLUMNS)])
        else:
            note(f"skipping the runs in {folder / name}: their settings are not those of multimix demo")
    return frames


def spiral_picture(folder: Path, scale: Scale) -> bytes | None:
    """Return Fig. 4 as SVG, or None without stored pictures at this scale.

    Args:
        folder: The folder of ``multimix demo``.
        scale: The scale.
    """
    name = next(name for name, scales in SCALES_BY_FILE.items() if scale in scales)
    picture = _boundaries(folder / name) if scale in read_demo(folder) else None
    return None if picture is None else picture.content


def write_spiral_page(path: Path) -> Path:
    """Write the page beside ``spiral.json`` and return its path.

    Args:
        path: The file that ``multimix demo`` wrote.
    """
    study = read_spiral(path)
    settings, seeds = study.settings, counted(len(study.seeds), "seed")
    lead = (
        f"Two spiral arms, {settings.train} training points of which {settings.flipped} carry the wrong label, and a small "
        f"network trained {len(study.seeds)} times without mixup, with manifold mixup (K = 1) and with multi-mix (K = 5), on the "
        f"same {seeds}."
    )
    facts = {**asdict(settings), "seeds": ", ".join(map(str, study.seeds)), "net": study.network, "mixing": MIXING}
    environments = Counter(study.frame.environment)
    blocks = [
        Section("Decision boundaries", [_boundaries(path)]),
        Section("What the data show, and what they do not", map(Finding, findings(study))),
        Section("Accuracy on clean test labels", [accuracy_table(study)]),
        Section("Paired differences over the same seeds", [paired_table(study)]),
        Section("Expected beforehand", [expectation_table(study)]),
        Section("Settings", [Facts(facts)]),
        Section(
            "Obtained with", [Code("\n".join(f"{count} runs: {environment}" for environment, count in environments.items()))]
        ),
    ]
    medians = "; ".join(f"{arm.words}: median {mean.median:.2f} %" for arm, mean in study.summaries.items())
    alt = f"Accuracy of every seed under the three trainings. {medians}."
    figure = Picture(svg(accuracy_figure(study)), alt, ACCURACY_CAPTION)
    title = "The noisy spiral: no mixup, manifold mixup, multi-mix"
    page = render_page(title, lead, blocks, headline=headline(study), figure=figure)
    return write_files(path.parent, {f"{path.stem}.html": page.encode()})[0]


def accuracy_figure(study: SpiralStudy) -> Figure:
    """Draw mean, single seeds, and the paper's run of every arm.

    Args:
        study: The runs.
    """
    rows = {
        arm.words.replace(", ", "\n"): [Dot(mean, "mean, 95 % interval", study.of(arm).accuracy.tolist(), arm.paper)]
        for arm, mean in study.summaries.items()
    }
    return dots(rows, "right test labels (%)", bounds=PERCENT, reference="the paper's one run")


def accuracy_table(study: SpiralStudy) -> Table:
    """Return accuracy, collapsed runs, and cost of every arm beside the paper's number.

    Args:
        study: The runs.
    """
    means, runs = study.summaries.values(), [study.of(arm) for arm in ARMS]
    columns = [
        Column("training", [arm.words for arm in ARMS]),
        Column("n", [mean.n for mean in means]),
        Column("mean ± 95 %", list(means)),
        Column("median", [mean.median for mean in means]),
        Column("collapsed", list(map(study.collapsed, ARMS))),
        Column("paper (one run)", [arm.paper for arm in ARMS]),
        Column("lowest", [float(arm_runs.accuracy.min()) for arm_runs in runs]),
        Column("highest", [float(arm_runs.accuracy.max()) for arm_runs in runs]),
        Column("CPU s (per run)", [float(arm_runs.cpu_seconds.mean()) for arm_runs in runs]),
    ]
    tested = f"Per cent of {study.frame.tested.iloc[0]} clean test labels after the last epoch; n counts seeds."
    notes = f"{tested} Collapsed: below {COLLAPSED:.0f} %. The paper's numbers: {PAPER_NOTE}."
    return Table("Accuracy on clean test labels, %", columns, [notes])


def paired_table(study: SpiralStudy) -> Table:
    """Return the paired differences beside the paper's.

    Args:
        study: The runs.
    """
    heads = ["difference", "points ± 95 %", "higher in", "p (paired t)", "p (Wilcoxon)", "paper (one run)"]
    rows: list[list[Any]] = []
    for comparison in comparisons(study):
        several, test = comparison.test.n > 1, comparison.test
        mean = (signed(test.mean), f"± {test.half:.2f}" if several else "")
        p_values = [p_value(p) if several else EMPTY for p in (test.p_t, test.p_wilcoxon)]
        name = f"{comparison.first.short} − {comparison.second.short}"
        rows.append([name, mean, f"{test.wins} of {test.n}", *p_values, signed(comparison.paper)])
    return Table.of_rows("Paired differences over the same seeds, in points", heads, rows, [PAIRED_NOTE])


def expectation_table(study: SpiralStudy) -> Table:
    """Return expected and measured numbers, without rows unless this is a full study.

    Args:
        study: The runs.
    """
    complete = study.settings == SpiralSettings() and len(study.seeds) >= MIN_SEEDS
    rows = [(expected, measured, "yes" if met else "no") for expected, measured, met in _expectations(study)] if complete else []
    return Table.of_rows("", ["expected", "measured", "met"], rows, [EXPECTED_NOTE])


def comparisons(study: SpiralStudy) -> list[Comparison]:
    """Return K = 1 against none, K = 5 against none, and K = 5 against K = 1.

    Args:
        study: The runs.
    """
    # Counts, since percentages that should tie differ in their last bits.
    right = study.frame.pivot(index="seed", columns="arm", values="right")
    points = 100 / study.frame.tested.iloc[0]
    compared = []
    for first, second in ((K1, NONE), (K5, NONE), (K5, K1)):
        test = paired(right[first.name].tolist(), right[second.name].tolist())
        test = test._replace(mean=test.mean * points, half=test.half * points)
        compared.append(Comparison(first, second, test, ((right[first.name] - right[second.name]) * points).tolist()))
    return compared


def headline(study: SpiralStudy) -> str:
    """Return a sentence on the accuracy of the arms and the significant differences.

    Args:
        study: The runs.
    """
    means = ", ".join(
        f"{arm.words.replace(', ', ' (')}{')' if ',' in arm.words else ''} {mean.mean:.1f} %"
        for arm, mean in study.summaries.items()
    )
    if len(study.seeds) == 1:
        return f"Accuracy on clean test labels: {means}; one seed cannot compare them."
    first, second, last = (comparison.test for comparison in comparisons(study))
    gains = sum(test.significant and test.mean > 0 for test in (first, second))
    gain = ("Mixing is not significantly better", "Mixing is better for one K", "Mixing is better for both K")[gains]
    above = f"K = 5 is {'above' if last.mean > 0 else 'below'} K = 1"
    difference = above if last.significant else "K = 1 and K = 5 do not differ significantly"
    return f"Accuracy on clean test labels: {means} (means of {len(study.seeds)} seeds). {gain}; {difference}."


def findings(study: SpiralStudy) -> list[str]:
    """Return sentences on what the data do and do not show.

    Args:
        study: The runs.
    """
    compared, seeds = comparisons(study), counted(len(study.seeds), "seed")
    epochs, full = study.settings.epochs, SpiralSettings.epochs
    short = f"This was a short run ({epochs:,} of {full:,} epochs, {seeds}); it does not compare the methods."
    sentences = [*([short] if epochs < full else []), *map(_difference_sentence, compared), _paper_sentence(compared[-1])]
    counts = "; ".join(f"{arm.words}: {count} of {len(study.seeds)}" for arm in ARMS if (count := study.collapsed(arm)))
    if counts:
        sentences.append(
            f"Some runs collapsed to less than {COLLAPSED:.0f} % ({counts}). One such run moves a mean by a point or more, so "
            "read the medians beside the means."
        )
    return sentences


def p_value(p: float) -> str:
    """Format a p-value with two digits.

    Args:
        p: The p-value.

    >>> p_value(0.314), p_value(0.0061), p_value(4.6e-8)
    ('0.31', '0.0061', '5e−8')
    """
    return f"{p:.2f}" if p >= 0.095 else f"{p:.2g}" if p >= 1e-3 else f"{p:.0e}".replace("e-0", "e-").replace("-", "−")


def _difference_sentence(comparison: Comparison) -> str:
    first, second, test, differences = comparison
    if test.n == 1:
        return f"One seed cannot compare {first.words} with {second.words}; they differ by {signed(test.mean)} points here."
    ties = sum(difference == 0 for difference in differences)
    wins = f"higher in {test.wins} of {test.n} seeds" + (f", equal in {ties}" if ties else "")
    tests = f"{wins}; paired t-test p = {p_value(test.p_t)}, Wilcoxon p = {p_value(test.p_wilcoxon)}"
    if test.significant:
        text = (
            f"{first.words[0].upper()}{first.words[1:]} is {'better' if test.mean > 0 else 'worse'} than {second.words}: "
            f"{_points(test)} points, and the 95 % interval leaves out 0 ({tests})."
        )
    else:
        low, high = signed(test.mean - test.half), signed(test.mean + test.half)
        text = (
            f"Between {first.words} and {second.words} these data show no difference: {_points(test)} points, and the 95 % "
            f"interval contains 0 ({tests}). That is no proof of equality: anything from {low} to {high} points fits the data."
        )
    # With fewer than six pairs Wilcoxon's p cannot fall below 0.05.
    if test.n > 5 and test.significant != (test.p_wilcoxon < 0.05):
        text += " The two tests disagree at the 5 % level, so this depends on a few seeds."
    return text


def _paper_sentence(comparison: Comparison) -> str:
    test, paper = comparison.test, comparison.paper
    if test.n == 1:
        position = "one seed does not compare with it"
    else:
        inside = "inside" if abs(test.mean - paper) <= test.half else "outside"
        count = sum(difference >= paper - 1e-9 for difference in comparison.differences)
        position = (
            f"that lies {inside} our interval for the mean difference, and {count} of {test.n} seeds differ by as much or more"
        )
    return (
        f"The paper's single runs have K = 5 ahead of K = 1 by {signed(paper)} points; {position}. Its generator and several "
        "of its settings are not published, so its run is neither confirmed nor refuted here."
    )


def _expectations(study: SpiralStudy) -> Iterator[tuple[str, str, bool]]:
    *gains, last = comparisons(study)
    for first, second, test, _ in gains:
        met = test.mean > max(MIN_GAIN, test.half) and test.wins >= MIN_WIN_RATE * test.n
        expected = f"{first.short} − {second.short} above {MIN_GAIN:.0f} points, interval above 0, 3 of 4 seeds"
        yield expected, f"{_points(test)}, {test.wins} of {test.n}", met
    yield f"{K5.short} at most {MAX_LOSS} points below {K1.short}", _points(last.test), last.test.mean >= -MAX_LOSS
    for arm in ARMS:
        allowed, count = int(MAX_COLLAPSED_RATE * len(study.seeds)) if arm is NONE else 0, study.collapsed(arm)
        yield f"{arm.short}: {f'at most {allowed}' if allowed else 'none'} collapsed", str(count), count <= allowed


def _points(test: Paired) -> str:
    return f"{signed(test.mean)} ± {test.half:.2f}"


def _joined(environment: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in environment.items())


def _boundaries(path: Path) -> Picture | None:
    """Return the stored pictures that belong to ``spiral.json``."""
    grid = read_image_grid(path.with_name(f"{path.stem}-boundaries.npz"))
    if grid is None:
        return None
    alt = "; ".join(title.replace("\n", ", ") for title in grid.titles)
    return Picture(svg(image_grid(grid, side=BOUNDARY_SIDE)), alt, grid.caption)
