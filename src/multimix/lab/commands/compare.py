"""`multimix compare`."""

from pathlib import Path
from typing import Annotated

from .options import Changes, changes_of, option


def compare(
    folder: Annotated[Path, option("Your pictures or WAV files: train/ and test/, or one folder per class.", "FOLDER")],
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
    methods: Annotated[tuple[str, ...], option("What is compared with no mixing; multimix list methods names all.", "NAME …")] = (
        "mixup",
        "cutmix",
    ),
    ks: Annotated[tuple[int, ...], option("With how many interpolations each.", "K …")] = (1, 5),
    seeds: Annotated[int, option("How many trainings of each, from seed 0 on.", "N")] = 3,
    budget: Annotated[str, option("How long it may take: 90s, 30m, 2h.", "TIME")] = "30m",
    jobs: Annotated[int, option("Runs at a time, each in a process of its own.", "N")] = 1,
    out: Annotated[
        Path | None, option("Where everything goes.", "FOLDER", default="multimix-compare/ and the name of the folder")
    ] = None,
    set_: Changes = (),
) -> None:
    """Which mixing is best for your own data, how sure that is, and at what cost: trained within a time budget, on one page.

    FOLDER holds train/ and test/ (or val/) with one folder per class in each, or the folders of the classes themselves, of which
    one in five samples is then tested on. Pictures of any size and kind, or WAV files. The folder is checked first: what cannot
    be read, copies in both parts, classes with too few samples. No mixing is always trained, and every run gets as many updates.
    Stopped, the same command resumes where it was.

    Try it:
      multimix compare photos
      multimix compare photos --methods cutmix --ks 1 5 --seeds 5 --budget 2h
      multimix compare photos --model timm/resnet18 --data.side 128
    """
    from rich.console import Console

    from ..report.pages.compare import answer_table
    from ..studies.compare import compare_folder
    from ..terminal import tell

    page, found = compare_folder(
        folder,
        model=model,
        methods=methods,
        ks=ks,
        seeds=seeds,
        budget=budget,
        out=out,
        jobs=jobs,
        changes=changes_of(set_),
    )
    Console().print(answer_table(found.study))
    print(found.answer.headline)
    for sentence in found.answer.sentences:
        print(f"- {sentence}")
    tell(page, "It has the answer, your samples mixed, and what it rests on.")
