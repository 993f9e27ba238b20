"""The figures of a study, by name: errors, curves, effects of K, cost, calibration, evaluations."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from ..images import ImageGrid
from ..recipes.base import counts_k
from ..sweep.plan import Equal
from .comparison import longest_schedules
from .figures import BASELINE_STYLE, PERCENT, REFERENCE, UNBOUNDED, Dot, Series, against, curves, dots, image_grid
from .frame import BASELINE, ECE, ERROR_LABELS, SCALE_LABELS, Row, RunGroup, Study
from .paper import paper_error
from .stats import Summary, half_shown, summary
from .study_tables import confusion_matrix
from .style import BLUE, DASHES, GRAY, look, save
from .tables import cell, joined

MAX_GROUPS = 12  # groups that one figure can distinguish
INTERVALS = "mean over seeds with its 95 % interval, or with two seeds both"


class CurveSpec(NamedTuple):
    """Specification of a figure of the epoch frame.

    Args:
        column: Column to draw.
        title: Title in words.
        ylabel: Label of the vertical axis.
        over: Column of the horizontal axis.
        log: Whether the vertical axis is logarithmic.
    """

    column: str
    title: str
    ylabel: str
    over: str = "number"
    log: bool = False


CURVES: Mapping[str, CurveSpec] = {
    "error": CurveSpec("error", "error after every epoch", "error (%)"),
    "loss": CurveSpec("loss", "training loss of every epoch", "training loss"),
    "gradient": CurveSpec("squared_grad_norm", "squared gradient norm of an update, mean of the epoch", "‖g‖²", log=True),
}
COST_CURVES: Mapping[str, CurveSpec] = {
    "rows": CurveSpec("error", "error after every evaluated epoch", "error (%)", "samples"),
    "seconds": CurveSpec("error", "error after every evaluated epoch", "error (%)", "compute"),
}


class Drawn(NamedTuple):
    """A figure as files.

    Args:
        files: Content by file name.
        caption: What the figure shows, in words.
    """

    files: Mapping[str, bytes]
    caption: str

    @property
    def svg(self) -> bytes:
        """The drawing for a page."""
        return next(content for name, content in self.files.items() if name.endswith(".svg"))


def study_figures(study: Study) -> dict[str, Drawn]:
    """Return all nonempty figures of a study by name.

    Args:
        study: The study.
    """
    figures: dict[str, tuple[Figure | None, str]] = {
        "dots": (error_dots(study), f"Every way of training, the lowest error on top: {INTERVALS}."),
        **{
            name: (
                epoch_curves(study, spec),
                f"{spec.title[:1].upper()}{spec.title[1:]}: mean over seeds, band from lowest to highest.",
            )
            for name, spec in CURVES.items()
        },
        "k": (error_against_k({"": study}), f"Error against K: {INTERVALS}."),
        "time": (time_against_k(study), "Seconds per epoch against K, as a multiple of K = 1."),
    }
    return _drawn(study, figures) | evaluation_figures(study)


def evaluation_figures(study: Study) -> dict[str, Drawn]:
    """Return the nonempty figures of evaluations by name.

    Args:
        study: The study.
    """
    figures: dict[str, tuple[Figure | None, str]] = {
        "gradient_norm": (norm_against_k(study), "Squared gradient norm at fixed weights against K, as a multiple of K = 1."),
        "training_time": (update_time_against_k(study), "Time of an update at fixed weights against K, as a multiple of K = 1."),
        "confusion": (
            confusions(study),
            "Confusion matrices: true classes down, predicted ones across; bright is frequent.",
        ),
        "reliability": (reliability(study), "Accuracy against confidence in bins (a, b], all seeds together."),
    }
    return _drawn(study, figures)


def budget_figures(budgets: Mapping[Equal, Study], changed: str = "", stem: str = "sweep") -> dict[str, Drawn]:
    """Return error against K and cost, a panel per budget, and error over rows and seconds.

    Args:
        budgets: Studies by budget.
        changed: Fields that were changed, in words.
        stem: Beginning of the files' names.
    """
    longest = longest_schedules(budgets)
    titled = {f"equal {equal}": study for equal, study in budgets.items()}
    figures: dict[str, tuple[Figure | None, str]] = {
        "k": (error_against_k(titled), f"Error against K: {INTERVALS}."),
        "cost": (error_against_cost(titled), f"Error against the cost of a training (numbers are K): {INTERVALS}."),
        **{name: (epoch_curves(longest, spec), f"{spec.title} over {name}.") for name, spec in COST_CURVES.items()},
    }
    return _drawn(longest, {f"{stem}-{name}": drawn for name, drawn in figures.items()}, changed)


def _drawn(study: Study, figures: Mapping[str, tuple[Figure | None, str]], changed: str = "") -> dict[str, Drawn]:
    scale = f"{SCALE_LABELS[study.scale]}{'; ' + changed if changed else ''}"
    return {
        name: Drawn(save(name, figure, study.recipe.title, scale, caption), caption)
        for name, (figure, caption) in figures.items()
        if figure is not None
    }


def error_dots(study: Study) -> Figure | None:
    """Draw the reported error of every group, a row per method.

    Args:
        study: The study.
    """
    rows: dict[str, list[tuple[RunGroup, Summary]]] = {}
    for group in sorted(study.trained, key=lambda group: group.k):
        if (mean := group.summary(study.error)) is not None:
            footnote = f" {study.marks()[group.differs]}" if group.differs else ""
            processes = f" ({group.processes} processes)" if group.processes > 1 else ""
            rows.setdefault(f"{group.arm}{footnote}{processes}", []).append((group, mean))
    if sum(map(len, rows.values())) < 2:
        return None
    ordered = dict(sorted(rows.items(), key=lambda row: min(mean.mean for _, mean in row[1])))
    ks = sorted({group.k for points in rows.values() for group, _ in points if counts_k(group.arm)})
    dots_by_label = {
        label: [Dot(mean, f"K = {group.k}" if counts_k(group.arm) else "") for group, mean in points]
        for label, points in ordered.items()
    }
    series = [f"K = {k}" for k in ks]
    return dots(dots_by_label, f"{ERROR_LABELS[study.error]} (%)", bounds=PERCENT, series=series)


def epoch_curves(study: Study, spec: CurveSpec, groups: Sequence[RunGroup] | None = None) -> Figure | None:
    """Draw a column of the epoch frame: mean over seeds in a band from lowest to highest.

    Args:
        study: The study.
        spec: The column to draw, and its axes.
        groups: The groups; None for at most :data:`MAX_GROUPS` groups of lowest error.
    """
    chosen = _lowest(study) if groups is None else list(groups)
    series = []
    for group, style in zip(chosen, _styles(chosen), strict=True):
        points = _curve(group, spec)
        if len(points):
            below, above = points["mean"] - points["min"], points["max"] - points["mean"]
            x, y = points["at"].tolist(), points["mean"].tolist()
            series.append(Series(study.label(group), x, y, below.tolist(), above.tolist(), style))
    if not series:
        return None
    xlabel = {"number": "epoch", "samples": "rows through the network", "compute": f"{_seconds(study)} of training"}[spec.over]
    bounds = PERCENT if spec.column == "error" else UNBOUNDED
    return curves(series, xlabel, spec.ylabel, bounds=bounds, log=spec.log, from_zero=spec.over != "number")


def _curve(group: RunGroup, spec: CurveSpec) -> pd.DataFrame:
    """Return mean, lowest, and highest value of every epoch that has one."""
    epochs = group.epochs[group.epochs.seed.isin(group.seeds) & group.epochs[spec.column].notna()]
    if spec.log:
        epochs = epochs[epochs[spec.column] > 0]
    grouped = epochs.groupby("number")
    return grouped[spec.column].agg(["mean", "min", "max"]).assign(at=grouped[spec.over].mean())


def error_against_k(studies: Mapping[str, Study]) -> Figure | None:
    """Draw the error of every method against K, a panel per study; lines without K are dashed.

    Args:
        studies: Studies by the title of their panel.
    """
    if not any(
        len({group.k for group in method_groups}) > 1
        for study in studies.values()
        for method_groups in _by_method(study).values()
    ):
        return None
    styles = _method_styles(studies)
    if len(styles) > MAX_GROUPS:
        return None
    series_by_panel: dict[str, list[Series]] = {}
    for title, study in studies.items():
        by_method, ks = _by_method(study), sorted({group.k for group in study.trained})
        series = []
        for i, (label, method_groups) in enumerate(by_method.items()):
            means = [(group.k + 0.1 * (i - (len(by_method) - 1) / 2), group.summary(study.error)) for group in method_groups]
            series.append(_series(label, [(x, mean) for x, mean in means if mean], styles[label]))
        for group in study.trained:
            if not counts_k(group.arm) and not group.differs and (mean := group.mean(study.error)) is not None:
                label = "no mixing" if group.arm == BASELINE else group.arm
                series.append(Series(label, [ks[0], ks[-1]], [mean, mean], style=BASELINE_STYLE))
        if study.scale == "paper":
            series += _paper_series(study, styles)
        series_by_panel[title] = series
    study = next(iter(studies.values()))
    ticks = sorted({group.k for panel_study in studies.values() for group in panel_study.trained})
    return against(series_by_panel, "K", f"{study.error} error (%)", bounds=PERCENT, ticks=ticks)


def _paper_series(study: Study, styles: Mapping[str, Mapping[str, Any]]) -> Iterator[Series]:
    for label, method_groups in _by_method(study).items():
        papers = [(group.k, paper_error(study.recipe.name, group.arm, group.k)) for group in method_groups if not group.changed]
        values_by_k = [(k, value) for k, value in papers if value is not None]
        if values_by_k:
            hollow = {**styles[label], "marker": "D", "ls": "", "ms": 8, "mfc": "none", "zorder": 4}
            yield Series(f"{label}, the paper", [k for k, _ in values_by_k], [value for _, value in values_by_k], style=hollow)


def time_against_k(study: Study) -> Figure | None:
    """Draw seconds per epoch as a multiple of K = 1, on the same machine.

    Args:
        study: The study.
    """
    ratios: dict[str, list[tuple[float, Summary]]] = {}
    for label, method_groups in _by_method(study).items():
        first = next((group for group in method_groups if group.k == 1), None)
        if first is not None and len(method_groups) > 1:
            ratios_by_k = [(float(group.k), _time_ratio(group, first)) for group in method_groups]
            ratios[label] = [(k, ratio) for k, ratio in ratios_by_k if ratio is not None]
    return _multiples(ratios, "time, multiple of K = 1")


def _time_ratio(group: RunGroup, first: RunGroup) -> Summary | None:
    columns = ["machine", "seconds_per_epoch"]
    both = group.runs[columns].join(first.runs[columns].add_suffix("_1"))
    same_machine = both[(both["machine"] == both["machine_1"]) & (both["seconds_per_epoch_1"] > 0)]
    ratios = same_machine["seconds_per_epoch"] / same_machine["seconds_per_epoch_1"]
    return summary(ratios.tolist()) if len(ratios) else None


def norm_against_k(study: Study) -> Figure | None:
    """Draw the measure gradient_norm: ‖g‖² at fixed weights as a multiple of K = 1.

    Args:
        study: The study.
    """
    return _multiples(_ratios_of(study, "gradient_norm", "ratio"), "‖g‖², multiple of K = 1", growth=False)


def update_time_against_k(study: Study) -> Figure | None:
    """Draw the measure training_time: time of an update as a multiple of K = 1.

    Args:
        study: The study.
    """
    return _multiples(_ratios_of(study, "training_time", "ratio"), "time of an update, multiple of K = 1")


def _ratios_of(study: Study, measure: str, field: str) -> dict[str, list[tuple[float, Summary]]]:
    ratios: dict[str, list[tuple[float, Summary]]] = {}
    for group in study.trained:
        by_k: dict[int, list[float]] = {}
        for evaluation in group.evaluated(measure):
            for row in evaluation["result"]["rows"]:
                value = row[field]["median"] if isinstance(row[field], Mapping) else row[field]
                if value is not None:
                    by_k.setdefault(row["k"], []).append(value)
        if len(by_k) > 1:
            ratios[study.label(group)] = [(float(k), summary(values)) for k, values in sorted(by_k.items())]
    return ratios


def _multiples(ratios: Mapping[str, Sequence[tuple[float, Summary]]], ylabel: str, growth: bool = True) -> Figure | None:
    """Draw multiples of K = 1, with K itself or 1 as the reference."""
    ks = sorted({k for points in ratios.values() for k, _ in points})
    if len(ks) < 2 or len(ratios) > MAX_GROUPS:
        return None
    series = [_series(label, points, look(i)) for i, (label, points) in enumerate(ratios.items())]
    reference = Series("K times", ks, ks, style=REFERENCE) if growth else Series("K = 1", ks, [1.0] * len(ks), style=REFERENCE)
    return against({"": [*series, reference]}, "K", ylabel, bounds=(0.0, math.inf), ticks=ks)


def error_against_cost(studies: Mapping[str, Study]) -> Figure | None:
    """Draw the error of every method against seconds, a panel per study, with arrows to larger K.

    Args:
        studies: Studies by the title of their panel.
    """
    if not any(group.mean("compute") for study in studies.values() for group in study.trained):
        return None
    if len(_method_styles(studies)) > MAX_GROUPS:
        studies = {title: study._replace(groups=tuple(_lowest(study))) for title, study in studies.items()}
    styles = _method_styles(studies)
    series_by_panel: dict[str, list[Series]] = {}
    for title, study in studies.items():
        series = []
        for label, method_groups in _by_method(study, mixing=False).items():
            points = [(group, group.mean("compute"), group.summary(study.error)) for group in method_groups]
            measured = [(group, spent, mean) for group, spent, mean in points if spent and mean]
            names = [str(group.k) if counts_k(group.arm) else "" for group, _, _ in measured]
            line = _series(label, [(spent, mean) for _, spent, mean in measured], styles[label])
            series.append(line._replace(names=names))
        series_by_panel[title] = series
    study = next(iter(studies.values()))
    xlabel = f"{_seconds(study)} of a training"
    return against(series_by_panel, xlabel, f"{study.error} error (%)", bounds=PERCENT, xlog=True, connected=False)


def reliability(study: Study) -> Figure | None:
    """Draw accuracy against confidence, a panel per group.

    Args:
        study: The study.
    """
    series_by_panel: dict[str, list[Series]] = {}
    for group in study.trained:
        results = [row["result"]["calibration"] for row in group.evaluated("calibration")]
        mean = group.summary(ECE)
        if mean is None or len({len(result["bins"]) for result in results}) != 1:
            continue
        bins = [bin_ for bin_ in pooled_bins(results) if bin_["count"]]
        total = sum(bin_["count"] for bin_ in bins)
        confidence, accuracy = [bin_["confidence"] for bin_ in bins], [bin_["accuracy"] for bin_ in bins]
        share = [100 * bin_["count"] / total for bin_ in bins]
        title = f"{study.label(group)}\nECE (%) {joined(cell(mean))}"
        series_by_panel[title] = [
            Series("calibrated", [0.0, 100.0], [0.0, 100.0], style=REFERENCE),
            Series("accuracy", confidence, accuracy, style={"color": BLUE, "marker": "o"}),
            Series("share of samples", confidence, share, style={"color": GRAY, "marker": "|", "ls": ":"}),
        ]
    return against(series_by_panel, "confidence (%)", "accuracy (%)", bounds=(0.0, 100.0)) if series_by_panel else None


def confusions(study: Study) -> Figure | None:
    """Draw the confusion matrix of every group: a row per true class, a column per predicted one."""
    results = {study.label(group): [row["result"] for row in group.evaluated("error")] for group in study.trained}
    matrices = {label: confusion_matrix(own) for label, own in results.items() if own}
    if not matrices or len({matrix.shape for matrix in matrices.values()}) > 1:
        return None
    colored = [matplotlib.colormaps["cividis"](matrix / matrix.max())[..., :3] for matrix in matrices.values()]
    pixels = (255 * np.stack(colored)).round().astype(np.uint8)
    return image_grid(ImageGrid(pixels, tuple(matrices), min(len(pixels), 4)), side=1.8)


def pooled_bins(results: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the calibration bins of several runs with the samples of all.

    Args:
        results: Results of the measure ``calibration``, with bins of the same edges.
    """
    bins = []
    for run_bins in zip(*(result["bins"] for result in results), strict=True):
        count, right = (sum(run_bin[name] for run_bin in run_bins) for name in ("count", "right"))
        total = math.fsum(run_bin["count"] * run_bin["confidence"] for run_bin in run_bins if run_bin["count"])
        means = (total / count, 100 * right / count) if count else (None, None)
        edges = {"low": run_bins[0]["low"], "high": run_bins[0]["high"]}
        bins.append({**edges, "count": count, "right": right, "confidence": means[0], "accuracy": means[1]})
    return bins


def _series(label: str, points: Sequence[tuple[float, Summary]], style: Mapping[str, Any]) -> Series:
    halves = [half if math.isfinite(half := half_shown(mean)) else 0.0 for _, mean in points]
    return Series(label, [x for x, _ in points], [mean.mean for _, mean in points], halves, halves, style)


def _lowest(study: Study) -> list[RunGroup]:
    """Return no mixing and the groups of lowest error, at most :data:`MAX_GROUPS`."""
    groups = study.trained
    if len(groups) <= MAX_GROUPS:
        return groups
    means = {group.key: group.mean(study.error) for group in groups}
    ranked = sorted(
        groups, key=lambda group: (group.arm != BASELINE, means[group.key] if means[group.key] is not None else math.inf)
    )
    chosen = {group.key for group in ranked[:MAX_GROUPS]}
    return [group for group in groups if group.key in chosen]


def _by_method(study: Study, *, mixing: bool = True) -> dict[str, list[RunGroup]]:
    """Return groups by method and settings in ascending order of K."""
    by_method: dict[str, list[RunGroup]] = {}
    for group in sorted(study.trained, key=lambda group: group.k):
        if counts_k(group.arm) or not mixing:
            mark = f" {study.marks()[group.differs]}" if group.differs else ""
            by_method.setdefault(f"{group.arm}{mark}", []).append(group)
    order = {f"{group.arm}": i for i, group in reversed(list(enumerate(study.groups)))}
    return dict(sorted(by_method.items(), key=lambda item: order[item[1][0].arm]))


def _method_styles(studies: Mapping[str, Study]) -> dict[str, dict[str, Any]]:
    """Return the same look in all panels; gray for methods without K."""
    labels = {
        label: method_groups[0].arm
        for study in studies.values()
        for label, method_groups in _by_method(study, mixing=False).items()
    }
    mixing = [label for label, arm in labels.items() if counts_k(arm)]
    styles = {label: look(i) for i, label in enumerate(mixing)}
    without_k = [label for label in labels if label not in styles]
    return styles | {label: {"color": GRAY, "marker": "hv"[i % 2], "ls": "--"} for i, label in enumerate(without_k)}


def _styles(groups: Sequence[RunGroup]) -> list[dict[str, Any]]:
    """Return shades for one method with several K, else a color per group; gray without K."""
    mixing = [group for group in groups if counts_k(group.arm)]
    if len({group.arm for group in mixing}) == 1 and len(mixing) > 1:
        shades = matplotlib.colormaps["viridis"]  # its end is too light on white
        mixing_styles = iter([{"color": to_hex(shades(0.85 * i / (len(mixing) - 1))), "ls": "-"} for i in range(len(mixing))])
    else:
        mixing_styles = iter([{key: value for key, value in look(i).items() if key != "marker"} for i in range(len(mixing))])
    gray = iter([{"color": GRAY, "ls": DASHES[i % len(DASHES)]} for i in range(len(groups) - len(mixing))])
    return [next(mixing_styles if counts_k(group.arm) else gray) for group in groups]


def _seconds(study: Study) -> str:
    return "CPU seconds" if study.timed == "CPU s" else "seconds"
