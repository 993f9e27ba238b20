"""Keep the runs of docs/study.md in the repository: rows, settings and evaluations, and the stored runs of the spiral.

    python tools/pack_study.py multimix-runs

Checkpoints are left out. Outcomes and evaluations are copied; loss, accuracy, gradient and time of single epochs are rounded to
four digits, which makes the archive four times smaller. Unpacked, it is a folder from which runs resume and reports are made.
The runs of the spiral in RUNS/spiral, from the archive, are copied.
"""

import argparse
import json
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

from multimix.lab.storage import CHECK, digest, read_rows

ROUNDED = ("loss", "accuracy", "squared_grad_norm", "seconds", "cpu_seconds")
ARCHIVE = Path(__file__).parents[1] / "docs/study/runs.tar.xz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder that train and sweep wrote to")
    parser.add_argument("--archive", type=Path, default=ARCHIVE)
    options = parser.parse_args()
    rows = read_rows(options.runs / "results.jsonl", sys.exit)
    if not rows:
        sys.exit(f"{options.runs} has no results.jsonl with rows in it")
    files = {"results.jsonl": "".join(map(smaller_row, rows)).encode()}
    for row in rows:
        for path in ((options.runs / row["folder"] / name) for name in ("settings.json", "evaluations.jsonl")):
            if path.exists():
                files[str(path.relative_to(options.runs))] = path.read_bytes()
    files |= {str(path.relative_to(options.runs)): path.read_bytes() for path in (options.runs / "spiral").rglob("*.json")}
    half = options.archive.with_suffix(".half")
    with tarfile.open(half, "w:xz", preset=9) as packed:
        for name in sorted(files, key=lambda name: (Path(name).name, name)):  # what is alike lies side by side
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            packed.addfile(entry, BytesIO(files[name]))
    half.replace(options.archive)
    print(f"{options.archive}: {len(files):,} files, {options.archive.stat().st_size / 1e6:.2f} MB")


def smaller_row(row: dict[str, Any]) -> str:
    """The row as a line, with a new checksum."""
    row = {name: value for name, value in row.items() if name != CHECK}
    row["epochs"] = [
        {name: float(f"{value:.4g}") if name in ROUNDED else value for name, value in epoch.items()} for epoch in row["epochs"]
    ]
    return json.dumps({**row, CHECK: digest(row)}, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
