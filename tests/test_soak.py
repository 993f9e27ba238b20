"""``tools/soak.py`` counts, goes on where it was, and tells faults; the parts themselves are too long for tests."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "soak.py"
ONLY_CALLS = ("--kills", "0", "--steps", "0", "--runs", "0", "--flips", "0")


def soaked(out, calls):
    command = [sys.executable, str(TOOL), *ONLY_CALLS, "--calls", str(calls), "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_it_goes_on_where_it_was_and_ends_with_an_error_if_there_is_a_fault(tmp_path):
    first = soaked(tmp_path, 15)
    assert first.returncode == 0, first.stderr
    again = soaked(tmp_path, 40)
    assert again.returncode == 0, again.stderr
    state = json.loads((tmp_path / "calls.json").read_text())
    assert state["done"] == sum(state["counts"].values()) == 40
    assert set(state["counts"]) == {"right", "refused"}
    assert "| calls | 40 |" in again.stdout
    state["counts"]["foreign error: 7"] = 1
    (tmp_path / "calls.json").write_text(json.dumps(state))
    told = soaked(tmp_path, 40)
    assert told.returncode == 1
    assert "foreign error: 7" in told.stdout
