"""Kernels: compiled lazily with a notice, kept on disk, forgotten by nobody; threads that share work evenly."""

import importlib
import os
import re
import subprocess
import sys
import threading

import pytest

from multimix import compiled

RUN = """
import logging, sys
import torch
import multimix as mm
assert not any(name.split(".")[0] == "numba" for name in sys.modules), "numba is loaded only when it is needed"
mm.warmup()
from multimix.methods.puzzlemix.graphcut_kernel import cut_levels
print(sum(cut_levels.stats.cache_hits.values()), sum(cut_levels.stats.cache_misses.values()))
"""


@pytest.mark.slow
def test_compiled_once_with_a_notice_then_loaded_in_silence(tmp_path):
    """Two processes with a cache folder of their own: the first compiles and says so, the second loads."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    runs = [
        subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True, env=environment) for _ in range(2)
    ]
    assert [run.stdout.split() for run in runs] == [["0", "1"], ["1", "0"]]
    notice = "multimix is compiling its kernels (once, then kept on disk; multimix.warmup() does it ahead of time)\n"
    first, *more = runs[0].stderr.splitlines(keepends=True)
    assert first == notice
    assert all(re.fullmatch(r"multimix is compiling \w+: about \d+ % done, \d+ s left\n", line) for line in more)
    assert runs[1].stderr == ""


ALL_METHODS = """
import sys
import torch
import multimix as mm
from multimix.testing import cases, images

torch.set_num_threads(1)
mm.warmup()

from numba.core.dispatcher import Dispatcher

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("multimix")]
    return {f"{name}{kind}" for module in modules for name, part in vars(module).items() if isinstance(part, Dispatcher)
            for kind in part.signatures}

before = compiled()
for known in mm.entries():
    for case in cases(known) if known.mixes("images") and known.name != "alignmixup" else ():
        for size in ((12, 10), (224, 200)):
            x = images(3, size, 3)
            for k in (1, 3):
                plan = case.plan(x, k)
                plan.mix(x), plan.lam
print(len(before), *compiled() - before)
"""


@pytest.mark.slow
def test_warmup_leaves_nothing_to_compile():
    """AlignMixup compiles nothing, and aligns no layer as large as the images here."""
    run = subprocess.run([sys.executable, "-c", ALL_METHODS], capture_output=True, text=True, check=True)
    before, *late = run.stdout.split()
    assert int(before) > 10
    assert late == []


class Slow:
    """A kernel whose compilation takes a while."""

    __name__ = "slow"

    class stats:  # noqa: N801  as numba calls it
        cache_misses = {"a": 1}  # noqa: RUF012


def test_progress_is_told_with_an_estimate(monkeypatch, caplog):
    pauses, ticks = [], iter(range(100))

    class Ended:
        def wait(self, pause):
            pauses.append(pause)
            return len(pauses) > 3

    monkeypatch.setattr(compiled.time, "monotonic", lambda: 30.0 * next(ticks))
    monkeypatch.setattr(compiled.time, "process_time", iter([0.0, 5.0, 100.0]).__next__)
    compiled._tell_once.cache_clear()
    compiled._tell(Slow(), 20.0, Ended())
    assert pauses == [compiled.NOTICE_AFTER, *[compiled.PACE] * 3]
    assert [record.getMessage() for record in caplog.records] == [
        "multimix is compiling its kernels (once, then kept on disk; multimix.warmup() does it ahead of time)",
        "multimix is compiling slow: about 25 % done, 90 s left",
        "multimix is compiling slow: about 95 % done, 3 s left",
    ]


def test_a_folder_nobody_may_write_to_is_no_obstacle(monkeypatch):
    numba = pytest.importorskip("numba")
    asked = []

    def njit(**options):
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled.kernel(len) is len
    assert asked == [{"nogil": True, "cache": True}, {"nogil": True}]


def test_a_kernel_is_compiled_anew_when_another_file_changes(monkeypatch, tmp_path):
    """A kernel may have parts from other files, which numba does not look at."""
    (tmp_path / "doubling.py").write_text("def doubled(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    doubled = importlib.import_module("doubling").doubled
    misses = []
    for digest in ("first", "first", "second", "second"):
        monkeypatch.setattr(compiled, "sources", lambda digest=digest: digest)
        kernel = compiled.kernel(doubled)
        assert kernel(21) == 42
        misses.append(sum(kernel.stats.cache_misses.values()))
    assert misses == [1, 0, 1, 0]


def test_the_digest_is_that_of_all_compiled_files(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    found = []
    for name, text in (
        ("a.py", "from .compiled import inner"),
        ("b.py", "import torch"),
        ("c.py", "from ..compiled import kernel"),
    ):
        (tmp_path / name).write_text(text)
        found.append(compiled.sources.__wrapped__())
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("count", "threads", "least", "parts"), [(10, 1, 1, 1), (10, 3, 1, 3), (10, 4, 4, 2), (3, 8, 1, 3), (0, 2, 1, 1)]
)
def test_work_is_cut_into_even_parts(count, threads, least, parts):
    seen, lock = [], threading.Lock()

    def work(start, stop):
        with lock:
            seen.append((start, stop))

    compiled.in_chunks(work, count, threads, least)
    seen.sort()
    assert len(seen) == parts
    assert [place for start, stop in seen for place in range(start, stop)] == list(range(count))
    assert max(stop - start for start, stop in seen) - min(stop - start for start, stop in seen) <= 1


def test_an_error_in_a_thread_is_raised():
    def work(start, stop):
        raise ValueError("in a thread")

    with pytest.raises(ValueError, match="in a thread"):
        compiled.in_chunks(work, 4, 2)
