"""Compiled solvers: loaded when needed, cached on disk, safe against damaged files and forks."""

import importlib
import os
import re
import subprocess
import sys
import threading

import pytest

from multimix.core import compiled

pytest.importorskip("numba")


def run_python(code, cache, *, check=True, timeout=600):
    """Run code in a process with its own cache folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=check,
        env=environment,
        timeout=timeout,
    )


WARMUP = """
import sys
import multimix as mm
assert not any(name.split(".")[0] == "numba" for name in sys.modules), "numba is imported when needed"
mm.warmup()
from multimix.methods.sage_kernel import *
from numba.core.dispatcher import Dispatcher
modules = [module for name, module in sys.modules.items() if name.startswith("multimix")]
kernels = {part for module in modules for part in vars(module).values() if isinstance(part, Dispatcher)}
print(sum(sum(part.stats.cache_hits.values()) for part in kernels),
      sum(sum(part.stats.cache_misses.values()) for part in kernels if part.targetoptions.get("nogil")))
"""


@pytest.mark.slow
def test_compiled_once_with_a_log_line_then_loaded_in_silence(tmp_path):
    first, second = (run_python(WARMUP, tmp_path) for _ in range(2))
    assert first.stderr != ""
    assert all(re.fullmatch(r"compiling \w+ .*", line) for line in first.stderr.splitlines())
    assert second.stderr == ""
    assert int(second.stdout.split()[0]) > 5


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
    return {f"{name}{kind}" for module in modules for name, part in vars(module).items()
            if isinstance(part, Dispatcher) for kind in part.signatures}

before = compiled()
for known in mm.registry.entries():
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
    """AlignMixup compiles nothing, and its layers are not as large as the images used here."""
    run = subprocess.run([sys.executable, "-c", ALL_METHODS], capture_output=True, text=True, check=True)
    before, *late = run.stdout.split()
    assert int(before) > 5
    assert late == []


DOUBLED = "def doubled(x):\n    return 2 * x\n"
CALL = """
import sys
sys.path.insert(0, {folder!r})
from doubling import doubled
from multimix.core import compiled
compiled.sources = lambda: "unchanged"  # the package may be edited between two processes
kernel = compiled.kernel(doubled)
print(kernel(21), sum(kernel.stats.cache_hits.values()))
"""


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["empty", "half", "noise"])
def test_a_damaged_cache_file_warns_and_is_compiled_again(tmp_path, ending, damage):
    """The next process loads the repaired file in silence."""
    (tmp_path / "doubling.py").write_text(DOUBLED)
    code = CALL.format(folder=str(tmp_path))
    assert run_python(code, tmp_path).stdout.split() == ["42", "0"]
    (path,) = tmp_path.rglob(f"*.{ending}")
    content = path.read_bytes()
    path.write_bytes({"empty": b"", "half": content[: len(content) // 2], "noise": b"\x80\xff" * 99}[damage])
    repaired = run_python(code, tmp_path)
    assert repaired.stdout.split() == ["42", "0"]
    assert "damaged" in repaired.stderr
    again = run_python(code, tmp_path)
    assert again.stdout.split() == ["42", "1"]
    assert again.stderr == ""


FORKS = """
import sys, threading, time
sys.path.insert(0, {folder!r})
import torch
from torch.utils.data import DataLoader
import multimix.core.compiled as compiled

def solved(samples):
    return compiled.load_kernels("solver", "the test").doubled(samples[0])

started = threading.Event()
{busy}
thread = threading.Thread(target=busy)
thread.start()
started.wait()
batches = DataLoader([21], num_workers=2, collate_fn=solved, multiprocessing_context="fork", timeout=100)
print(*batches)
thread.join()
"""
BUSY = {
    "imports numba": """
def busy():
    threading.Thread(target=watch).start()
    compiled.load_kernels("solver", "the test")

def watch():
    while "numba" not in sys.modules:
        time.sleep(0.001)
    started.set()
""",
    "imports kernels": """
def busy():
    compiled.load_kernels("slow_import", "the test")

sys.modules["started"] = started
""",
    "compiles": """
kernels = compiled.load_kernels("solver", "the test")
from numba.core.compiler_lock import global_compiler_lock

def busy():
    with global_compiler_lock:
        started.set()
        time.sleep(2)
""",
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("busy", BUSY)
def test_workers_forked_while_a_thread_loads_kernels_do_not_hang(tmp_path, busy):
    (tmp_path / "solver.py").write_text(f"from multimix.core.compiled import kernel\n@kernel\n{DOUBLED}")
    (tmp_path / "slow_import.py").write_text("import sys, time\nsys.modules['started'].set()\ntime.sleep(2)\nimport solver\n")
    code = FORKS.format(folder=str(tmp_path), busy=BUSY[busy])
    run = run_python(code, tmp_path, check=False, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.split() == ["42"]


def test_a_folder_without_write_access_is_no_obstacle(monkeypatch, caplog):
    class NoFolder:
        def __init__(self, function):
            raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(compiled, "_cache_class", lambda: NoFolder)

    def doubled(x):
        return 2 * x

    assert compiled.kernel(doubled)(21) == 42
    assert "doubled" in caplog.text


def test_a_full_disk_warns_and_the_solver_runs(monkeypatch, caplog):
    from numba.core.caching import IndexDataCacheFile

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "save", full)

    def tripled(x):
        return 3 * x

    assert compiled.kernel(tripled)(14) == 42
    assert "No space left" in caplog.text


def test_a_numba_that_cannot_be_imported_counts_as_missing(monkeypatch, caplog):
    def broken(name):
        raise ImportError("Numba needs NumPy 2.2 or less")

    compiled.has_numba.cache_clear()
    monkeypatch.setattr(compiled.importlib, "import_module", broken)
    assert not compiled.has_numba()
    assert "NumPy 2.2" in caplog.text
    compiled.has_numba.cache_clear()


def test_without_numba_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(compiled, "has_numba", lambda: False)
    with pytest.raises(ImportError, match=r"SAGE .*multimix\[solvers\]"):
        compiled.load_kernels("multimix.methods.sage_kernel", "SAGE")


def test_a_kernel_is_compiled_again_when_another_file_changes(monkeypatch, tmp_path):
    """A kernel may call functions of other files, whose changes numba does not see."""
    (tmp_path / "doubling.py").write_text(DOUBLED)
    monkeypatch.syspath_prepend(tmp_path)
    doubled = importlib.import_module("doubling").doubled
    misses = []
    for digest in ("first", "first", "second", "second"):
        monkeypatch.setattr(compiled, "sources", lambda digest=digest: digest)
        kernel = compiled.kernel(doubled)
        assert kernel(21) == 42
        misses.append(sum(kernel.stats.cache_misses.values()))
    assert misses == [1, 0, 1, 0]


def test_the_digest_covers_all_files_with_kernels(monkeypatch, tmp_path):
    (tmp_path / "core").mkdir()
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "core" / "compiled.py"))
    digests = []
    for name, text in (
        ("a.py", "from .compiled import inner"),
        ("b.py", "import torch"),
        ("c.py", "from ..core.compiled import kernel"),
    ):
        (tmp_path / name).write_text(text)
        digests.append(compiled.sources.__wrapped__())
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("count", "threads", "min_chunk", "parts"),
    [(10, 1, 1, 1), (10, 3, 1, 3), (10, 4, 4, 2), (3, 8, 1, 3), (0, 2, 1, 1)],
)
def test_work_is_cut_into_even_parts(count, threads, min_chunk, parts):
    lock, seen = threading.Lock(), []

    def work(start, stop):
        with lock:
            seen.append((start, stop))

    compiled.in_chunks(work, count, threads, min_chunk)
    seen.sort()
    lengths = [stop - start for start, stop in seen]
    assert len(seen) == parts
    assert [i for start, stop in seen for i in range(start, stop)] == list(range(count))
    assert max(lengths) - min(lengths) <= 1


def test_an_error_in_a_thread_is_raised():
    def work(start, stop):
        raise ValueError("in a thread")

    with pytest.raises(ValueError, match="in a thread"):
        compiled.in_chunks(work, 4, 2)
