"""`multimix compare`."""

from pathlib import Path
from typing import Annotated

from .options import Changes, option, parse_changes


def compare(
    folder: Annotated[Path, option("Folder of images or WAV files: train/ and test/, or one folder per class.", "FOLDER")],
    /,
    *,
    model: Annotated[
        str | None,
        option(
            "resnet18, any name of multimix list networks, timm/NAME, or package.module:Class.",
            "NAME",
            default="the lab's ResNet-18; a narrow one without a GPU",
        ),
    ] = None,
    methods: Annotated[
        tuple[str, ...], option("Methods to compare with no mixing; multimix list methods shows all.", "NAME …")
    ] = ("mixup", "cutmix"),
    ks: Annotated[tuple[int, ...], option("Numbers of interpolations.", "K …")] = (1, 5),
    seeds: Annotated[int, option("Number of trainings per method and K, with seeds from 0.", "N")] = 3,
    budget: Annotated[str, option("Time limit, such as 90s, 30m, or 2h.", "TIME")] = "30m",
    jobs: Annotated[int, option("Number of runs at a time, each in a separate process.", "N")] = 1,
    out: Annotated[Path | None, option("Output folder.", "FOLDER", default="multimix-compare/ and the name of FOLDER")] = None,
    set_: Changes = (),
) -> None:
    """Find the best mixing method for your data within a time budget, with its significance and cost on one page.

    FOLDER holds train/ and test/ (or val/) with one folder per class in each, or only the folders of the classes. Without test/,
    a fifth of the samples is the test set. Samples are images of any size, or WAV files. The command first reports unreadable
    files, copies in both splits, and classes with too few samples. It always trains no mixing, and all runs have the same number
    of updates. After Ctrl-C, the same command resumes.

    Try it:
      multimix compare photos
      multimix compare photos --methods cutmix --ks 1 5 --seeds 5 --budget 2h
      multimix compare photos --model timm/resnet18 --data.side 128
    """
    from rich.console import Console

    from ..report.pages.compare import answer_table
    from ..studies.compare import compare_folder
    from ..terminal import tell

    page, result = compare_folder(
        folder,
        model=model,
        methods=methods,
        ks=ks,
        seeds=seeds,
        budget=budget,
        out=out,
        jobs=jobs,
        changes=parse_changes(set_),
    )
    Console().print(answer_table(result.study))
    print(result.answer.headline)
    for sentence in result.answer.sentences:
        print(f"- {sentence}")
    tell(page, "It has the recommendation, mixed samples, and all results.")
