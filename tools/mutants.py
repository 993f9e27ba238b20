"""Check the tests by mutants: known bugs, put into a copy of the code one at a time, which a test must notice.

    python tools/mutants.py --check                            every mutant applies and compiles: seconds
    python tools/mutants.py --list --group report              ids and what each mutant changes
    python tools/mutants.py --only holm-monotone unpaired      run two of them
    python tools/mutants.py --out build/mutants.jsonl          run all: hours; started again, it continues
    python tools/mutants.py --out build/mutants.jsonl --again  run the survivors again, after tests were added

A mutant is killed if one of its tests fails or takes too long, and survives if all pass. Survivors show what no test checks.
A mutant that no test could be run with is an error, as is a test that fails without mutants (--baseline).

The mutants are in tools/mutants.toml. Each names a file of src/multimix, a text that occurs once in it, and its replacement.
Tests are those of the file, in the table [tests]; methods and what they are built on also run the tests of all methods.
Needs Python 3.11 or later, and pytest with the options of pyproject.toml.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = Path(__file__).with_suffix(".toml")
PACKAGE = "multimix"
FIELDS = ("id", "group", "file", "old", "new", "shows")
METHOD_TESTS = ("tests/methods/test_conformance.py", "tests/methods/test_laws.py")
NOT_METHODS = ("lab/", "compat/")  # folders whose files those tests do not reach
PYTEST = ("-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider")
PASSED, FAILED = 0, 1  # exit codes of pytest; others mean that tests could not be run
KILLED, SURVIVED, ERROR = "killed", "survived", "error"
LINES_SHOWN = 15
USES_KERNELS = "compiled import"  # in files whose changes invalidate all compiled kernels: multimix.core.compiled.sources
SECONDS_PER_MTIME = 10  # mutated files get other times than originals, so no compiled file of another mutant is used


@dataclass(frozen=True)
class Mutant:
    """One change of the code.

    Args:
        id: Short unique name.
        group: Part of the code.
        file: File, relative to the package.
        old: Text that occurs once in the file.
        new: Its replacement.
        shows: Input for which the mutant behaves differently.
        tests: Test files, in the order in which they run.
    """

    id: str
    group: str
    file: str
    old: str
    new: str
    shows: str
    tests: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Digest of the change and of the names of its tests."""
        return hashlib.sha256(repr((self.file, self.old, self.new, self.tests)).encode()).hexdigest()[:16]

    def applied(self, text: str) -> str:
        """Return the file with the change; raise ValueError if it does not apply or does not compile."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.id}: `old` must occur once in {self.file}, it occurs {count} times")
        mutated = text.replace(self.old, self.new)
        try:
            compile(mutated, self.file, "exec")
        except SyntaxError as error:
            raise ValueError(f"{self.id}: {self.file} does not compile with it: {error}") from None
        return mutated


def read_mutants(path: Path = MUTANTS) -> list[Mutant]:
    """Return the mutants of a file; raise ValueError if one is malformed."""
    import tomllib

    content = tomllib.loads(path.read_text(encoding="utf-8"))
    mutants: list[Mutant] = []
    for entry in content["mutant"]:
        name = entry.get("id", f"mutant {len(mutants) + 1}")
        unknown = set(entry) - {*FIELDS, "tests"}
        missing = [field for field in FIELDS if not entry.get(field)]
        if missing or unknown:
            raise ValueError(f"{path.name}: {name} must have the fields {', '.join(FIELDS)}, and may have tests")
        tests = entry.get("tests") or content["tests"].get(entry["file"])
        if not tests:
            raise ValueError(f"{path.name}: {name} needs tests=, or {entry['file']} an entry in [tests]")
        if not entry["file"].startswith(NOT_METHODS):
            tests = [*tests, *METHOD_TESTS]
        mutants.append(Mutant(**{field: entry[field] for field in FIELDS}, tests=tuple(tests)))
    repeated = [name for name, count in Counter(mutant.id for mutant in mutants).items() if count > 1]
    if repeated:
        raise ValueError(f"{path.name}: ids must be unique, repeated: {', '.join(repeated)}")
    return mutants


def selected(mutants: Sequence[Mutant], only: Sequence[str], groups: Sequence[str]) -> list[Mutant]:
    """Return the mutants that the options name; raise ValueError for unknown names."""
    known = sorted({mutant.group for mutant in mutants})
    if unknown := set(groups) - set(known):
        raise ValueError(f"--group must be of {', '.join(known)}, got {', '.join(sorted(unknown))}")
    if unknown := set(only) - {mutant.id for mutant in mutants}:
        raise ValueError(f"--only must be ids, which --list shows, got {', '.join(sorted(unknown))}")
    return [mutant for mutant in mutants if (not only or mutant.id in only) and (not groups or mutant.group in groups)]


def check(mutants: Sequence[Mutant]) -> list[str]:
    """Return one sentence for every mutant that does not apply, and for every missing test file."""
    problems = []
    for mutant in mutants:
        path = ROOT / "src" / PACKAGE / mutant.file
        try:
            mutant.applied(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            problems.append(str(error))
        problems += [f"{mutant.id}: no test file {test}" for test in mutant.tests if not (ROOT / test).is_file()]
    return problems


class Workspace:
    """A copy of ``src`` in a temporary folder. The work tree is never changed.

    Args:
        folder: An empty folder.
        timeout: Seconds for the tests of one mutant.
    """

    def __init__(self, folder: Path, timeout: float) -> None:
        self.folder, self.timeout, self.changes = folder, timeout, 0
        self.package = folder / "src" / PACKAGE
        ignored = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
        shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
        self.environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
        command = [sys.executable, "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)"]
        done = subprocess.run(command, env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False)
        if not done.stdout.startswith(str(self.folder)):
            raise ValueError(f"tests would not import the copy of {PACKAGE}: {done.stdout.strip() or done.stderr.strip()}")

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Apply the mutant to the copy, and restore the file afterwards."""
        path = self.package / mutant.file
        original, stat = path.read_bytes(), path.stat()
        self.changes += 1
        try:
            path.write_bytes(mutant.applied(original.decode()).encode())
            os.utime(path, (stat.st_atime, stat.st_mtime + SECONDS_PER_MTIME * self.changes))
            yield
        finally:
            path.write_bytes(original)
            os.utime(path, (stat.st_atime, stat.st_mtime))

    def run(self, tests: Sequence[str], mutant: Mutant | None = None) -> tuple[str, str, str]:
        """Run tests; return the verdict, the first failing test or the reason, and the last lines of the output."""
        cache, scratch = self.folder / "numba", self.folder / "scratch"
        if mutant is not None and USES_KERNELS in (self.package / mutant.file).read_text(encoding="utf-8"):
            cache = scratch / "numba"  # compiled anew, beside the cache of the original
        scratch.mkdir()
        environment = {**self.environment, "NUMBA_CACHE_DIR": str(cache), "TMPDIR": str(scratch)}
        command = [sys.executable, *PYTEST, *tests]
        # In a session of its own: workers and kill tests start processes, which a timeout must end, too.
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        process = subprocess.Popen(command, env=environment, cwd=ROOT, start_new_session=True, **options)
        try:
            output, _ = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            return KILLED, f"no result in {self.timeout:.0f} s", ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            shutil.rmtree(scratch, ignore_errors=True)
        failing = re.search(r"^(?:FAILED|ERROR) (\S+)", output, flags=re.MULTILINE)
        verdict = {PASSED: SURVIVED, FAILED: KILLED}.get(process.returncode, ERROR)
        reason = failing[1] if failing else f"pytest exit code {process.returncode}" if verdict != SURVIVED else ""
        return verdict, reason, "\n".join(output.splitlines()[-LINES_SHOWN:])


def stored_results(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return the last result per digest; raise ValueError if the file is no output of this script."""
    if path is None or not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]  # a stopped run may leave half a line at the end
    try:
        return {result["digest"]: result for result in map(json.loads, lines)}
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"--out {path} must hold results of this script, one per line") from None


def store(path: Path, result: dict[str, Any]) -> None:
    """Append a result, in place of half a line at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(result, ensure_ascii=False).encode() + b"\n")


def run_all(mutants: Sequence[Mutant], options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Run mutants without a result, print a line for each and a summary; return the exit code."""
    stored = stored_results(options.out)
    final = (KILLED,) if options.again else (KILLED, SURVIVED)
    results = {mutant.id: stored[mutant.digest] for mutant in mutants if mutant.digest in stored}
    results = {name: result for name, result in results.items() if result["verdict"] in final}
    waiting = [mutant for mutant in mutants if mutant.id not in results]
    if results:
        say(f"{len(results)} of {len(mutants)} have results in {options.out}")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        space = Workspace(Path(folder).resolve(), options.timeout)
        if options.baseline:
            for test in dict.fromkeys(test for mutant in waiting for test in mutant.tests):
                verdict, reason, output = space.run([test])
                if verdict != SURVIVED:
                    say(f"{output}\n{test} fails without a mutant ({reason}): correct it first")
                    return 2
        for number, mutant in enumerate(waiting, start=1):
            begin = time.monotonic()
            with space.mutated(mutant):
                verdict, reason, output = space.run(mutant.tests, mutant)
            seconds = round(time.monotonic() - begin, 1)
            names = {name: getattr(mutant, name) for name in ("id", "group", "file", "shows", "digest")}
            results[mutant.id] = {**names, "verdict": verdict, "reason": reason, "seconds": seconds}
            if options.out is not None:
                store(options.out, results[mutant.id])
            detail = f"  {reason}" if reason else f"  {mutant.file}: {mutant.shows}"
            say(f"{number}/{len(waiting)}  {verdict:8}  {seconds:6.1f} s  {mutant.group}/{mutant.id}{detail}")
            if verdict == ERROR:
                say(output)
    counts = Counter(result["verdict"] for result in results.values())
    survivors = [name for name, result in results.items() if result["verdict"] == SURVIVED]
    total = sum(result["seconds"] for result in results.values())
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (KILLED, SURVIVED, ERROR))
    say(f"{len(results)} mutants: {verdicts}, {total:.0f} s" + (f"; survived: {' '.join(survivors)}" if survivors else ""))
    return 0 if counts[KILLED] == len(results) else 1


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="these mutants")
    parser.add_argument("--group", nargs="+", default=[], metavar="NAME", help="the mutants of these groups")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="print id, file, and effect, and run nothing")
    action.add_argument("--check", action="store_true", help="only verify that every mutant applies and compiles")
    parser.add_argument("--out", type=Path, metavar="FILE", help="append results as JSON lines; stored ones are not run again")
    parser.add_argument("--again", action="store_true", help="run mutants that survived according to --out again")
    parser.add_argument("--baseline", action="store_true", help="first run the tests without a mutant, and stop if one fails")
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS", help="for the tests of one mutant (1800)")
    options = parser.parse_args(arguments)
    if options.again and options.out is None:
        parser.error("--again needs --out, the file with the results so far")
    if options.timeout <= 0:
        parser.error(f"--timeout must be positive, got {options.timeout:g}")
    return options


def main() -> None:
    options = parse()
    if sys.version_info < (3, 11):
        sys.exit("mutants.py needs Python 3.11 or later, which reads TOML")
    try:
        mutants = selected(read_mutants(), options.only, options.group)
        if options.list:
            for mutant in mutants:
                print(f"{mutant.group:9} {mutant.id:26} {mutant.file}: {mutant.shows}")
            return
        if problems := check(mutants):
            sys.exit("\n".join(problems))
        if options.check:
            groups = ", ".join(f"{name} {count}" for name, count in Counter(mutant.group for mutant in mutants).items())
            print(f"{len(mutants)} mutants apply and compile: {groups}")
            return
        sys.exit(run_all(mutants, options, lambda line: print(line, flush=True)))
    except ValueError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("stopped; --out FILE keeps what is done" if options.out is None else f"stopped; {options.out} has what is done")


if __name__ == "__main__":
    main()
