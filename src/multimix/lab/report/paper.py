"""Specifications of the paper's tables and figures, with its numbers and claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ...core.checks import nearest
from ..recipes import recipe
from ..recipes.base import Scale

REPORTED = "reported"  # the number that a recipe reports at a scale
SPIRAL = "spiral"  # the demo, in place of a recipe
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII")
Kind = Literal["table", "figure"]
Key = tuple[str, int]  # method and K
MULTI_MIX: Key = ("puzzlemix", 5)
PUZZLE: Key = ("puzzlemix", 1)
NONE: Key = ("none", 1)


class Value(NamedTuple):
    """A number of the paper.

    Args:
        mean: The number.
        sd: Standard deviation over the paper's runs, if given.
    """

    mean: float
    sd: float | None = None


class PaperRow(NamedTuple):
    """A row of an exhibit.

    Args:
        arm: The method.
        k: Its K.
        label: The paper's name of the row.
    """

    arm: str
    k: int
    label: str

    @property
    def key(self) -> Key:
        """Method and K."""
        return self.arm, self.k


@dataclass(frozen=True, eq=False)
class Measurement:
    """One measurement of every row.

    Args:
        head: Head of the column.
        recipe: Recipe of the runs.
        value: Column of the run frame. ``{k}`` stands for the row's K.
        lower: Whether lower values are better.
        unit: Unit of the values.
        places: Decimal places; None for numbers of any size.
        of: Method and K of the runs for all rows; None for method and K of each row.
        paper: The paper's numbers.
    """

    head: str
    recipe: str
    value: str = REPORTED
    lower: bool = True
    unit: str = "per cent"
    places: int | None = 2
    of: Key | None = None
    paper: Mapping[Key, Value] = field(default_factory=dict)

    def name(self, scale: Scale, k: int) -> str:
        """Return the column of the run frame.

        Args:
            scale: The scale.
            k: K of the row.
        """
        if self.recipe == SPIRAL:
            return self.value
        return recipe(self.recipe).reported(scale) if self.value == REPORTED else self.value.format(k=k)

    @property
    def measure(self) -> str | None:
        """The evaluation that measures it; None for numbers of the training."""
        return self.value.partition(".")[0].partition("@")[0] if "." in self.value else None


class Claim(NamedTuple):
    """A claim of the paper: row ``first`` is better than row ``second``, or than a number.

    Args:
        text: The claim in words.
        column: Index of the measurement.
        first: Method and K of the better row.
        second: Method and K of the other row, or a number.
    """

    text: str
    column: int
    first: Key
    second: Key | float


@dataclass(frozen=True, eq=False)
class Exhibit:
    """A table or figure of the paper.

    Args:
        kind: Table or figure.
        number: The paper's number.
        name: A short name for the command line.
        title: Title.
        about: Description in one sentence.
        columns: Measurements; a figure that shows pictures has none.
        rows: Trainings.
        claims: Claims of the paper.
        notes: Contradictions and gaps in the paper, and our choices.
        pictures_of: Recipes whose runs a figure without measurements shows.
    """

    kind: Kind
    number: int
    name: str
    title: str
    about: str
    columns: tuple[Measurement, ...] = ()
    rows: tuple[PaperRow, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    pictures_of: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The name for ``--only``: ``VIII``, ``fig6``."""
        return ROMAN[self.number - 1] if self.kind == "table" else f"fig{self.number}"

    @property
    def label(self) -> str:
        """The paper's label: ``Table VIII``, ``Fig. 6``."""
        return f"Table {self.short}" if self.kind == "table" else f"Fig. {self.number}"

    @property
    def file_stem(self) -> str:
        """The stem of its files: ``table-VIII``, ``figure-6``."""
        return f"{self.kind}-{self.label.split()[1]}"

    @property
    def recipes(self) -> tuple[str, ...]:
        """Recipes whose runs it shows."""
        return tuple(dict.fromkeys((*(column.recipe for column in self.columns), *self.pictures_of)))

    @property
    def trainings(self) -> tuple[tuple[str, str, int], ...]:
        """Recipe, method, and K of every training whose numbers it shows."""
        keys = [(column.recipe, *(column.of or row.key)) for column in self.columns for row in self.rows]
        keys += [(name, *row.key) for name in self.pictures_of for row in self.rows]
        return tuple(dict.fromkeys(key for key in keys if key[0] != SPIRAL))

    @property
    def measures(self) -> tuple[str, ...]:
        """Evaluations that it needs."""
        return tuple(dict.fromkeys(column.measure for column in self.columns if column.measure is not None))

    def part(self, recipe_name: str) -> "Exhibit":
        """Return the exhibit with the measurements of one recipe only.

        Args:
            recipe_name: Name of the recipe.
        """
        indices = [i for i, column in enumerate(self.columns) if column.recipe == recipe_name]
        claims = [claim._replace(column=indices.index(claim.column)) for claim in self.claims if claim.column in indices]
        return replace(self, columns=tuple(self.columns[i] for i in indices), claims=tuple(claims))


def exhibit(name: str) -> Exhibit:
    """Return a table or figure of the paper.

    Args:
        name: ``I`` … ``VIII`` or ``tableI`` for tables, ``fig2`` … ``fig8`` for figures, or its name.

    Raises:
        ValueError: If the paper has no exhibit with this name.

    Examples:
        >>> [exhibit(name).label for name in ("V", "fig6", "table2", "speech")]
        ['Table V', 'Fig. 6', 'Table II', 'Table VII']
    """
    normalized = name.strip().lower().replace(" ", "").replace(".", "")
    names: dict[str, Exhibit] = {}
    for candidate in EXHIBITS:
        numbers = (str(candidate.number), candidate.short.lower()) if candidate.kind == "table" else (str(candidate.number),)
        names |= dict.fromkeys(
            (candidate.name, candidate.short.lower(), *(candidate.kind + number for number in numbers)), candidate
        )
    if normalized not in names:
        raise ValueError(f"the paper has no exhibit {name!r}{nearest(normalized, names)}; use I … VIII or fig2 … fig8")
    return names[normalized]


def paper_error(recipe_name: str, arm: str, k: int) -> float | None:
    """Return the paper's error of a method with a recipe, if it reports one.

    Args:
        recipe_name: Name of the recipe.
        arm: The method.
        k: Its K.
    """
    columns = (column for shown_exhibit in EXHIBITS for column in shown_exhibit.columns if column.value == REPORTED)
    matching = (column for column in columns if column.recipe == recipe_name and (arm, k) in column.paper)
    return next((column.paper[arm, k].mean for column in matching), None)


def _beside(rows: Sequence[PaperRow], values: Sequence[float | tuple[float, float]]) -> dict[Key, Value]:
    """Pair rows with means, or means and standard deviations."""
    pairs = zip(rows, values, strict=True)
    return {row.key: Value(*value) if isinstance(value, tuple) else Value(value) for row, value in pairs}


def _better_than_all(columns: Sequence[Measurement], rows: Sequence[PaperRow]) -> tuple[Claim, ...]:
    """Claim that multi-mix is better than every row, wherever the paper's own numbers say so."""
    label = next(row.label for row in rows if row.key == MULTI_MIX)
    claims = []
    for i, column in enumerate(columns):
        for row in (row for row in rows if row.key != MULTI_MIX and column.paper):
            below = column.paper[MULTI_MIX].mean < column.paper[row.key].mean
            if below == column.lower:
                text = f"{column.head}: {label} {'below' if column.lower else 'above'} {row.label}"
                claims.append(Claim(text, i, MULTI_MIX, row.key))
    return tuple(claims)


METHODS = (
    PaperRow("none", 1, "no mixup"),
    PaperRow("mixup", 1, "input mixup"),
    PaperRow("manifoldmix", 1, "manifold mixup"),
    PaperRow("cutout", 1, "cutout"),
    PaperRow("cutmix", 1, "cutmix"),
    PaperRow("fmix", 1, "FMix"),
    PaperRow("comixup", 1, "co-mixup"),
    PaperRow("puzzlemix", 1, "puzzle-mix"),
    PaperRow("smoothing", 1, "label smoothing"),
    PaperRow("puzzlemix", 5, "multi-mix (puzzle, K = 5)"),
)

# fmt: off
ERRORS_COLUMNS = (
    Measurement("CIFAR-100 (PreActResNet18)", "cifar100_preact_resnet18", paper=_beside(METHODS, (
        (23.53, 0.39), (22.49, 0.21), (21.62, 0.29), (21.12, 0.38), (21.29, 0.26), (21.52, 0.24), (19.89, 0.28), (20.61, 0.29),
        (23.09, 0.34), (19.19, 0.27)))),
    Measurement("CIFAR-100 (WRN16-8)", "cifar100_wrn16_8", paper=_beside(METHODS, (
        (21.93, 0.52), (20.18, 0.51), (20.49, 0.46), (19.19, 0.39), (20.14, 0.50), (19.75, 0.49), (19.24, 0.31), (19.27, 0.32),
        (21.45, 0.44), (18.52, 0.32)))),
    Measurement("CIFAR-100 (ResNeXt29-4-24)", "cifar100_resnext29_4_24", paper=_beside(METHODS, (
        (21.84, 0.16), (21.78, 0.09), (21.45, 0.12), (20.86, 0.13), (20.92, 0.10), (21.87, 0.10), (19.43, 0.08), (19.74, 0.09),
        (20.66, 0.12), (18.23, 0.06)))),
    Measurement("Tiny-ImageNet (PreActResNet18)", "tiny_imagenet", paper=_beside(METHODS, (
        (43.54, 0.13), (43.35, 0.12), (41.21, 0.10), (40.52, 0.15), (43.11, 0.12), (42.38, 0.15), (35.94, 0.11), (36.79, 0.07),
        (43.04, 0.12), (34.84, 0.08)))),
)
IMAGENET_ERRORS = _beside(METHODS, (24.03, 22.97, 23.30, 24.10, 22.92, 23.96, 22.39, 22.54, 23.44, 22.29))
LOCALIZATION = _beside(METHODS, (54.36, 55.07, 54.86, 54.24, 54.91, 54.57, 55.32, 55.22, 54.37, 55.43))
REPLACED = _beside(METHODS, (41.63, 39.41, 39.72, 41.75, 46.20, 41.42, 38.77, 39.23, 39.55, 39.01))
NOISE = _beside(METHODS, (29.22, 26.29, 26.79, 29.13, 27.13, 28.58, 25.89, 26.11, 27.77, 25.53))
SPEECH = _beside(METHODS, (4.84, 3.91, 3.67, 3.76, 4.36, 4.10, 3.54, 3.70, 4.72, 3.41))
ECE = _beside(METHODS, (5.93, 1.18, 1.70, 5.72, 4.31, 5.89, 2.17, 2.06, 5.39, 1.46))
TRANSFER = tuple(_beside(METHODS, step) for step in (
    (28.22, 33.30, 35.07, 30.70, 39.59, 28.13, 40.78, 39.37, 38.64, 45.14),
    (59.67, 64.78, 67.59, 64.34, 67.99, 58.20, 67.89, 70.16, 64.40, 74.72),
    (76.59, 75.90, 77.96, 77.99, 80.92, 75.34, 82.56, 82.69, 79.31, 84.48),
    (84.48, 84.42, 82.70, 82.91, 86.47, 82.80, 87.20, 87.60, 85.48, 88.36),
    (90.81, 92.41, 91.71, 90.95, 92.93, 90.13, 92.65, 93.39, 91.86, 94.10),
    (92.56, 93.62, 93.36, 92.59, 94.04, 91.96, 94.09, 94.45, 93.37, 95.24),
    (92.89, 94.12, 94.12, 93.45, 94.98, 93.10, 94.90, 94.92, 94.17, 95.94),
    (93.93, 94.71, 94.62, 93.97, 95.21, 93.52, 95.19, 95.41, 94.68, 96.08),
    (93.85, 94.99, 94.83, 94.12, 95.44, 93.71, 95.43, 95.57, 95.01, 96.23),
    (94.43, 95.09, 95.22, 94.49, 95.71, 94.27, 95.81, 95.82, 95.21, 96.49),
))
STRATEGIES = (
    PaperRow("large_batch", 5, "large-batch training"),
    PaperRow("large_batch_mixup", 5, "large-batch mixup"),
    PaperRow("batch_augmentation", 5, "batch augmentation"),
    PaperRow("batch_augmentation_mixup", 5, "batch augmentation with mixup"),
    PaperRow("puzzlemix", 5, "multi-mix (puzzle, K = 5)"),
)
STRATEGIES_COLUMN = Measurement("test error", "cifar100_resnext29_4_24", paper=_beside(STRATEGIES, (
    (33.45, 0.11), (26.54, 0.07), (20.91, 0.11), (19.41, 0.08), (18.23, 0.06))))
IMAGENET_COLUMN = Measurement("top-1 error", "imagenet", paper=IMAGENET_ERRORS)
LOCALIZATION_COLUMNS = (
    Measurement("IoU > 0.25 (text)", "imagenet", "localization.paper_text", lower=False, paper=LOCALIZATION),
    Measurement("IoU ≥ 0.5, class (code)", "imagenet", "localization.reference", lower=False, paper=LOCALIZATION),
    Measurement("MaxBoxAcc 0.5 (GT-known)", "imagenet", "localization.max_box_gt_known_0.5", lower=False),
    Measurement("MaxBoxAcc 0.5 (top-1)", "imagenet", "localization.max_box_top1_0.5", lower=False),
)
BACKGROUND_COLUMNS = (
    Measurement("clean", "imagenet", "background.clean"),
    Measurement("random replacement", "imagenet", "background.replaced", paper=REPLACED),
    Measurement("Gaussian noise", "imagenet", "background.noise", paper=NOISE),
)
TRANSFER_COLUMNS = (
    *(Measurement(f"step {i + 1} (boxes)", "imagenet", f"transfer.transfer_text_{i + 1}", lower=False, paper=step)
      for i, step in enumerate(TRANSFER)),
    *(Measurement(f"step {i + 1} (class)", "imagenet", f"transfer.accuracy_{i + 1}", lower=False, paper=step)
      for i, step in enumerate(TRANSFER)),
)
# fmt: on
SPEECH_COLUMN = Measurement("test error", "speech", paper=SPEECH)
ECE_COLUMN = Measurement("ECE", "imagenet", "calibration.ece", paper=ECE)

KS = (1, 3, 5, 7, 9)
CURVES = {"mixup": "input mixup", "manifoldmix": "manifold mixup", "cutmix": "cutmix", "puzzlemix": "puzzle-mix"}
AGAINST_K = (
    PaperRow("none", 1, "no mixup"),
    *(PaperRow(arm, k, f"{label}, K = {k}") for arm, label in CURVES.items() for k in KS),
)
INTERPOLATIONS = tuple(PaperRow("puzzlemix", k, f"K = {k}") for k in KS)
# The figure prints no numbers; Table I has numbers of the same trainings.
RESNEXT = {key: value for key, value in ERRORS_COLUMNS[2].paper.items() if key == NONE or key[0] in CURVES}
SPIRAL_ROWS = (
    PaperRow("none", 0, "no mixup"),
    PaperRow("manifold-k1", 1, "manifold mixup"),
    PaperRow("multimix-k5", 5, "multi-mix (K = 5)"),
)
SPIRAL_COLUMN = Measurement("accuracy", SPIRAL, "accuracy", lower=False, paper=_beside(SPIRAL_ROWS, (90.67, 94.17, 97.50)))

FOLLOWED = (
    "the paper names no loss; at its scale, the loss here is binary cross-entropy of the softmax, as in the code of Puzzle Mix "
    "and Co-Mixup, whose setup the paper follows (cross-entropy at the smaller scales)"
)
TABLES = (
    Exhibit(
        "table", 1, "errors", "Test error on CIFAR-100 and Tiny-ImageNet", "Three networks on CIFAR-100, one on Tiny-ImageNet.",
        ERRORS_COLUMNS, METHODS, _better_than_all(ERRORS_COLUMNS, METHODS),
        (
            "the paper's text gives the gain over puzzle-mix as 2.29 points with ResNeXt29-4-24 and 1.68 on Tiny-ImageNet; by "
            "its table it is 19.74 − 18.23 = 1.51 and 36.79 − 34.84 = 1.95 (the 1.42 and 0.75 of the other two agree): compare "
            "with the table",
            "the paper does not say which epoch it reports; here it is the median of the last 10 at paper scale, as the co-mixup "
            "code prints, otherwise the last epoch",
            FOLLOWED,
            "manifold mixup mixes at hidden layers only, as in the paper (s > 0); with --follow code a third of its batches are "
            "mixed at the input, as in its authors' code",
            "the clean loss that the code of Puzzle Mix adds on Tiny-ImageNet is not in the paper's loss: it is added with "
            "--follow code only; co-mixup, a baseline, has the clean loss of its authors",
        ),
    ),
    Exhibit(
        "table", 2, "batch-strategies", "Batch strategies on CIFAR-100, ResNeXt29-4-24",
        "Test error when five times as many samples make an update.",
        (STRATEGIES_COLUMN,), STRATEGIES, _better_than_all((STRATEGIES_COLUMN,), STRATEGIES),
        (
            "large batches make five times fewer updates at the same rate; large or augmented batches are mixed by puzzle-mix at "
            "K = 1, since the paper uses the setup of puzzle-mix; the paper does not give the rotation of batch augmentation "
            "(here ±15°)",
        ),
    ),
    Exhibit(
        "table", 3, "imagenet", "Validation error on ImageNet, ResNet-50", "100 epochs in three phases of growing images.",
        (IMAGENET_COLUMN,), METHODS, _better_than_all((IMAGENET_COLUMN,), METHODS),
        (
            "the paper quotes its baselines from the co-mixup paper; one run each",
            "the paper gives 160 and 352 as the sizes of its images: these are the stored sizes, and the network is trained on "
            "crops of 128 and 224",
            "the rate falls tenfold at epochs 65 and 90, as the paper says; with --follow code it falls linearly, as in the code",
            "the clean loss of Puzzle Mix's code is not in the paper's loss: it is added with --follow code only",
        ),
    ),
    Exhibit(
        "table", 4, "localization", "Weakly supervised localization on ImageNet, ResNet-50",
        "Objects found by boxes around class activation maps, without training on boxes.",
        LOCALIZATION_COLUMNS, METHODS, _better_than_all(LOCALIZATION_COLUMNS[:1], METHODS),
        (
            "the paper's text counts a box as correct when IoU > 0.25 and does not mention the class; in the co-mixup script it "
            "follows 0.25 is the threshold of the map, and a box is correct when IoU ≥ 0.5 and the class is right. Its 54 to "
            "55 % fit only the stricter rule, so 0.25 is probably a slip (we infer): both are shown, verdicts follow the text",
            "the script gives boxes that are disjoint in both axes a positive overlap; ours is 0",
        ),
    ),
    Exhibit(
        "table", 5, "corruption", "Validation error on ImageNet with corrupted backgrounds, ResNet-50",
        "The background is replaced by another validation image, or gets Gaussian noise with σ = 0.1.",
        BACKGROUND_COLUMNS, METHODS, _better_than_all(BACKGROUND_COLUMNS, METHODS),
        (
            "under random replacement the paper sets multi-mix's 39.01 in bold although co-mixup's 38.77 is lower",
            "the paper does not say how it separates object and background; here the background is everything outside all true "
            "boxes, and the other image is resized to fit",
        ),
    ),
    Exhibit(
        "table", 6, "transfer", "Transfer from ImageNet to CUB-200-2011, ResNet-50",
        "After each of ten epochs of training the last block and a new head.",
        TRANSFER_COLUMNS, METHODS, _better_than_all(TRANSFER_COLUMNS[:10], METHODS),
        (
            "the paper calls its values localization accuracy (map threshold 0.75; the overlap that counts is not given, here "
            "IoU > 0.25 as in its Table IV); from 28 % after one epoch to 94 % after ten they look like accuracy of the class, "
            "so both readings are shown, the paper's number stands beside both, and verdicts are on the boxes",
            "at step 2 the paper underlines cutmix's 67.99 although puzzle-mix has 70.16",
            "the last ResNet block is read as the last stage; with --set layers=stage4.2 it is the last bottleneck",
        ),
    ),
    Exhibit(
        "table", 7, "speech", "Test error on Google commands, VGG-11",
        "The error on the test clips at the epoch with the least validation error.",
        (SPEECH_COLUMN,), METHODS, _better_than_all((SPEECH_COLUMN,), METHODS),
        ("the paper does not give batch size, momentum, α, or how puzzle-mix was applied to a spectrogram",),
    ),
    Exhibit(
        "table", 8, "calibration", "Expected calibration error (ECE) on ImageNet, ResNet-50",
        "Ten equal bins of confidence, open below and closed above.",
        (ECE_COLUMN,), METHODS, _better_than_all((ECE_COLUMN,), METHODS),
        (
            'the paper calls the confidence a "logistic output"; it is the largest softmax probability',
            "in the paper input mixup has the least ECE (1.18), then multi-mix (1.46)",
        ),
    ),
)  # fmt: skip
FIGURES = (
    Exhibit(
        "figure", 2, "samples", "One sample of every method",
        "Two pictures, mixed once by each method.",
    ),
    Exhibit(
        "figure", 3, "interpolations", "Four interpolations of a pair",
        "Input mixup, cutmix and puzzle-mix, with the share of the second picture growing from left to right.",
    ),
    Exhibit(
        "figure", 4, "spiral", "Decision boundaries on the noisy spiral",
        "Accuracy in per cent of clean test labels after training with a fifth of the labels flipped.",
        (SPIRAL_COLUMN,), SPIRAL_ROWS,
        (
            Claim("manifold mixup above no mixup", 0, ("manifold-k1", 1), ("none", 0)),
            Claim("multi-mix above manifold mixup", 0, ("multimix-k5", 5), ("manifold-k1", 1)),
        ),
        (
            "the paper's numbers are 544, 565, and 585 of 600 test samples, probably of one run; the paper does not say whether "
            "it was selected or averaged, nor generator, weight decay, α, activation, and initialization",
        ),
    ),
    Exhibit(
        "figure", 5, "birds", "Boxes around birds after one epoch of transfer to CUB-200-2011",
        "The predicted box is red, the true one green; map threshold 0.75, the same birds for every run.",
        rows=METHODS, pictures_of=("imagenet",),
    ),
    Exhibit(
        "figure", 6, "effect-of-k", "Test error against K, CIFAR-100, ResNeXt29-4-24",
        "Mean and standard deviation over the seeds; dotted: no mixup.",
        (Measurement("test error", "cifar100_resnext29_4_24", paper=RESNEXT),), AGAINST_K,
        (
            *(Claim(f"{label}: K = 5 below K = 1", 0, (arm, 5), (arm, 1)) for arm, label in CURVES.items()),
            *(Claim(f"{label} at K = 5 below no mixup", 0, (arm, 5), NONE) for arm, label in CURVES.items()),
        ),
        ("the paper draws curves without numbers; those beside ours are the same trainings in its Table I",),
    ),
    Exhibit(
        "figure", 7, "training-time", "Training time against K, CIFAR-100, ResNeXt29-4-24",
        "How much longer than with K = 1 an update of puzzle-mix takes, in per cent, beside linear growth.",
        (Measurement("increase", "cifar100_resnext29_4_24", "training_time.increase_{k}", places=1, of=PUZZLE),), INTERPOLATIONS,
        tuple(Claim(f"K = {k} takes less than {k} times as long", 0, ("puzzlemix", k), 100.0 * (k - 1)) for k in KS[1:]),
        (
            "measured with the network that was trained with K = 1; the paper attributes the slow growth to parallel execution, "
            "which a single CPU core does not have",
        ),
    ),
    Exhibit(
        "figure", 8, "gradient-norm", "Squared norm of the gradient, CIFAR-100, ResNeXt29-4-24",
        "Averaged over the updates of each epoch, a curve for every K of puzzle-mix; the table has the last epoch.",
        (Measurement("‖g‖² (last epoch)", "cifar100_resnext29_4_24", "squared_grad_norm", unit="squared norm", places=None),),
        INTERPOLATIONS,
        tuple(Claim(f"K = {k} below K = 1", 0, ("puzzlemix", k), PUZZLE) for k in KS[1:]),
        (
            "the paper's variance subtracts (E‖g‖)², where the identity needs ‖E g‖²; the squared norm is a surrogate for the "
            "variance, exact up to ‖E g‖²; multimix variance measures the variance itself",
            "the paper does not say whether the gradient includes weight decay; here it does not",
        ),
    ),
)  # fmt: skip
EXHIBITS = (*TABLES, *FIGURES)
