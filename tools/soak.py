"""Proof at scale: kills, random calls, long-lived workers, a large sweep, flipped bits. Hours on one core; not part of CI.

    make soak                                              # all of it
    python tools/soak.py --kills 20 --calls 0 --steps 0 --runs 0 --flips 0   # some of one part

Every part keeps its counts in OUT/PART.json. Kills, calls and flips go on from there when started again, up to the number asked
for (to begin anew, remove the file). The table at the end has all parts that were ever run there.
"""

import argparse
import json
import math
import os
import platform
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path

import torch
from torch.utils.data import DataLoader

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import fuzzing  # noqa: E402
import multimix as mm  # noqa: E402
from killing import DONE, FAILED, KILLED, the_server  # noqa: E402
from leftovers import folder_of, kept  # noqa: E402
from multimix.methods.base import descriptions  # noqa: E402
from multimix.methods.registry import entry  # noqa: E402

POINTS = "multimix.lab.recipes.points"
SHORT = {"epochs": "2"}
# The layers and options that the network of the tests has; others take what their recipe says.
CHANGES = {"alignmixup": {"method.layers": '["stage1"]'}, "recursivemix": {"method.keep": "random"}}
GOOD = ("same bits", "told", "right", "refused", "steps", "runs")


def plans():
    """A short training with every method, at K = 1 or more: the arguments of ``planned``, and the module of the recipe."""
    for number, known in enumerate(mm.registry.entries()):
        changes = {**SHORT, **CHANGES.get(known.name, {})}
        yield {"method": known.name, "k": 1 + number % 3, "changes": changes}, POINTS if known.layout == "points" else "trial"


PLANS = list(plans())


@cache
def expected(number):
    """What plan ``number`` leaves if nothing happens, and how long it takes."""
    plan, module = PLANS[number]
    with tempfile.TemporaryDirectory() as folder:
        out, start = Path(folder) / "runs", time.monotonic()
        ended = the_server().train(out, plan, module=module)
        if ended.code != DONE:
            raise SystemExit(f"{plan['method']} does not train at all: {ended.error}")
        return kept(out), time.monotonic() - start


def kill(number):
    """Train, be killed at a random moment, go on; once in three times be killed again."""
    (plan, module), draw = PLANS[number % len(PLANS)], random.Random(number)
    whole, seconds = expected(number % len(PLANS))
    with tempfile.TemporaryDirectory() as folder:
        out, killed = Path(folder) / "runs", 0
        while killed <= number % 3 // 2:
            if killed_at(out, plan, module, draw, seconds):
                killed += 1
            else:  # it was done before
                shutil.rmtree(out, ignore_errors=True)
                killed, seconds = 0, 0.8 * seconds
        ended = the_server().train(out, plan, module=module)
        same = ended.code == DONE and kept(out) == whole
        return Counter({"kills": killed, "same bits" if same else f"other bits: {plan['method']} {number} {ended.error}": 1})


def killed_at(out, plan, module, draw, seconds):
    """Whether the training was killed before it was done: from outside at a random time, or by itself at a random event."""
    events = (None, None, ["on_any_file", draw.randrange(1, 30)], ["on_line", draw.randrange(1, 10), "die"])
    fault = draw.choice(events)
    child = the_server().start(out, plan, module=module, fault=fault)
    end = time.monotonic() + draw.uniform(0.05, 1) * seconds
    while fault is None and time.monotonic() < end and not child.report.exists():
        time.sleep(0.002)
    if fault is None and not child.report.exists():
        child.send()
    return child.wait().code == KILLED and not (out / "results.jsonl").exists()


def call(number):
    """One random call of the public functions."""
    found = fuzzing.outcome(number)
    fault = found.kind not in (fuzzing.RIGHT, fuzzing.REFUSED)
    return Counter({f"{found.kind}: {number} {found.said} {found.call}" if fault else found.kind: 1})


FLIPPED = (
    "last checkpoint",
    "checkpoint before",
    "best.checkpoint",
    "settings.json",
    "steps.csv",
    "epochs.jsonl",
    "results.jsonl",
)
CUTMIX = {"method": "cutmix", "k": 2}


@cache
def flip_base(finished):
    """A folder with a run that is finished, or was killed half way."""
    out = Path(tempfile.mkdtemp(prefix="soak-")) / "runs"
    fault = None if finished else ["on_line", 9, "die"]
    assert the_server().train(out, CUTMIX, fault=fault).code == (DONE if finished else KILLED)
    return out


@cache
def flip_whole():
    return kept(flip_base(finished=True))


def flip(number):
    """Turn one bit of one file round, and train on: the same bits, or one sentence."""
    kind, draw = FLIPPED[number % len(FLIPPED)], random.Random(number)
    whole = flip_whole()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "runs"
        shutil.copytree(flip_base(finished=kind == "results.jsonl"), out)
        checkpoints = sorted(folder_of(out).glob("step-*.checkpoint"))
        files = {"last checkpoint": checkpoints[-1], "checkpoint before": checkpoints[0], "results.jsonl": out / "results.jsonl"}
        path = files.get(kind, folder_of(out) / kind)
        content = bytearray(path.read_bytes())
        at, bit = draw.randrange(len(content)), draw.randrange(8)
        content[at] ^= 1 << bit
        path.write_bytes(content)
        ended = the_server().train(out, CUTMIX)
        where = f"{kind}, byte {at} of {len(content)}, bit {bit}"
        if ended.code == DONE:
            try:
                same = kept(out) == whole
            except Exception as error:
                return Counter({f"{where}: {type(error).__name__}: {error}": 1})
            return Counter({"same bits" if same else "told" if ended.notes else f"{where}: another result, and nothing said": 1})
        told = ended.code == FAILED and ended.error.startswith(("ValueError", "OSError")) and "\n" not in ended.error
        return Counter({"told" if told else f"{where}: {ended.code} {ended.error}": 1})


def drawn_samples(count):
    x = torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    return [(x[i], i % 10) for i in range(count)]


def workers(steps, note):
    """Batches from two workers that live on, method after method; memory, open files and repeated batches are looked at."""
    names = [known.name for known in mm.registry.entries() if known.mixes("images") and not _needs(known)]
    counts, start = Counter(), time.monotonic()
    before = None
    for name in names:
        known = entry(name)
        mix = mm.Mix(known.method(**{**known.examples[0], "k": 2}), 10, seed=0)
        loader = DataLoader(
            drawn_samples(320), batch_size=16, num_workers=2, persistent_workers=True, collate_fn=mix.collate, shuffle=True
        )
        seen = set()
        share = math.ceil(steps / len(names))
        while counts[name] < share:
            for x, target in loader:
                counts[name] += 1
                sound = len(x) in (16, 32) and bool(torch.isfinite(x).all()) and torch.allclose(target.sum(1), torch.ones(len(x)))
                digest = hash(x.numpy().tobytes())
                if not sound or (digest in seen and name != "none"):
                    counts[f"{name}: {'a batch came twice' if sound else 'an unsound batch'} at step {counts[name]}"] += 1
                seen.add(digest)
        del loader
        state = _memory()
        before = before or state  # after the first method: what is loaded once is loaded
        note(f"{name}: {counts[name]} steps")
    faults = {words: n for words, n in counts.items() if ":" in words}
    grown = {name: _memory()[name] - before[name] for name in before}
    done = sum(counts[name] for name in names)
    return {
        "done": done,
        "counts": {"steps": done, **faults},
        "seconds": time.monotonic() - start,
        "also": f"{len(names)} methods; {grown['MB']:+.0f} MB and {grown['files']:+d} open files since the first method",
    }


def _needs(known):
    made = known.method(**{**known.examples[0], "k": 2})
    return (
        made.traits.needs or made.traits.history or descriptions(made) or made.traits.mixes_at != (None,) or made.traits.own_loss
    )


def _memory():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"MB": pages * resource.getpagesize() / 2**20, "files": len(os.listdir("/proc/self/fd"))}


def sweep(runs, out, note):
    """A sweep of short trainings, what it costs to see that all are there, and its page.

    Nine in ten are trained before by processes that are forked, where nothing has to be imported again; the sweep finds them.
    """
    folder, timed = out / "sweep", {}
    seeds = list(range(math.ceil(runs / 3)))
    changes = {"epochs": "2", "batch": "20", "data.per_class": "4", "data.report_per_class": "4"}
    arms = (("none", 1), ("mixup", 1), ("mixup", 3))
    few = [{"method": method, "k": k, "seeds": seeds[:-2], "changes": changes} for method, k in arms]
    start = time.monotonic()
    ended = the_server().train(folder, *few, module="multimix.lab.recipes.digits") if len(seeds) > 2 else None
    timed["forked"] = time.monotonic() - start
    note(f"sweep, forked: {timed['forked']:.0f} s {ended.error if ended else ''}")
    chosen = ["digits", "--scale", "smoke", "--methods", "none", "mixup", "--ks", "1", "3", "--seeds", *map(str, seeds)]
    command = ["sweep", *chosen, "--set", *(f"{name}={value}" for name, value in changes.items()), "--out", str(folder)]
    commands = {"train": command, "again": command, "report": ["report", str(folder), "--out", str(out / "report")]}
    for name, arguments in commands.items():
        start = time.monotonic()
        ended = subprocess.run(
            [str(Path(sys.executable).with_name("multimix")), *arguments], capture_output=True, text=True, check=False
        )
        timed[name] = time.monotonic() - start
        note(f"sweep, {name}: {timed[name]:.0f} s")
        if ended.returncode != 0:
            return {"done": 0, "counts": {f"{name} failed: {ended.stderr[-300:]}": 1}, "seconds": sum(timed.values()), "also": ""}
    rows = len((folder / "results.jsonl").read_text().splitlines())
    size = sum(file.stat().st_size for file in (out / "report").rglob("*") if file.is_file()) / 2**20
    return {
        "done": rows,
        "counts": {"runs": rows},
        "seconds": sum(timed.values()),
        "also": f"started again {timed['again']:.1f} s, page {timed['report']:.1f} s and {size:.1f} MB",
    }


def counted(name, one, wanted, out, note):
    """``one(number)`` for every number up to ``wanted`` that is not done yet; counts go to the file from time to time."""
    path = out / f"{name}.json"
    state = json.loads(path.read_text()) if path.exists() else {"done": 0, "counts": {}, "seconds": 0.0, "also": ""}
    last = written = time.monotonic()
    while state["done"] < wanted:
        for words, n in one(state["done"]).items():
            state["counts"][words] = state["counts"].get(words, 0) + n
        state["done"] += 1
        now = time.monotonic()
        state["seconds"] += now - last
        last = now
        if now - written > 10 or state["done"] == wanted:
            written = now
            write(path, state)
            note(f"{name}: {state['done']} of {wanted}")


def write(path, state):
    part = path.with_suffix(".part")
    part.write_text(json.dumps({**state, "where": where()}, indent=1, ensure_ascii=False))
    part.replace(path)


@cache
def where():
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False).stdout
    return f"{time.strftime('%Y-%m-%d')}, {commit.strip()}, torch {torch.__version__}, Python {platform.python_version()}"


def table(out):
    """One line for every part that was ever run in ``out``, and whether nothing is wrong."""
    lines, sound = ["| part | n | outcome | faults | time | when |", "|---|---|---|---|---|---|"], True
    for path in sorted(out.glob("*.json")):
        state = json.loads(path.read_text())
        counts = state["counts"]
        faults = {words: n for words, n in counts.items() if words not in (*GOOD, "kills")}
        sound &= not faults
        outcome = ", ".join(f"{n:,} {words}" for words, n in counts.items() if words in (*GOOD, "kills"))
        outcome = "; ".join(filter(None, (outcome, state["also"])))
        minutes = f"{state['seconds'] / 60:.1f} min"
        lines.append(f"| {path.stem} | {state['done']:,} | {outcome} | {sum(faults.values())} | {minutes} | {state['where']} |")
        lines.extend(f"|  | | | {words[:200]} | | |" for words in list(faults)[:5])
    return "\n".join(lines), sound


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number, what in (
        ("kills", 1000, "trainings that are killed, over all methods"),
        ("calls", 100_000, "random calls of the public functions"),
        ("steps", 10_000, "batches from persistent workers"),
        ("runs", 200, "runs of a sweep"),
        ("flips", 100, "flipped bits in every kind of file"),
    ):
        parser.add_argument(f"--{name}", type=int, default=number, metavar="N", help=f"{what}; 0: not now (default: {number:,})")
    parser.add_argument("--out", type=Path, default=Path("multimix-soak"), metavar="FOLDER", help="where counts are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)

    def note(words):
        print(words, file=sys.stderr, flush=True)

    counted("kills", kill, options.kills, options.out, note)
    counted("calls", call, options.calls, options.out, note)
    counted("flips", flip, options.flips * len(FLIPPED), options.out, note)
    if options.steps:
        write(options.out / "workers.json", workers(options.steps, note))
    if options.runs:
        write(options.out / "sweep.json", sweep(options.runs, options.out, note))
    words, sound = table(options.out)
    print(words)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
