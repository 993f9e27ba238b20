"""A sweep that is killed, and started again at once while its run is still ending."""

import os
import signal
import subprocess
import sys
import time

import pytest

from multimix.lab.recipes.runs import RESULTS, planned
from multimix.lab.storage import read_rows
from multimix.lab.sweep.progress import epochs_done
from trial import RECIPE
from two_processes import PATIENCE

pytestmark = pytest.mark.slow
PLAN = {"scale": "smoke", "method": "mixup", "k": 2, "changes": {"epochs": "40", "running.checkpoint_updates": "1000000"}}
SWEEP = """
import sys
from multimix.lab.sweep.workers import train_runs
from multimix.lab.recipes.runs import planned
from trial import RECIPE

if __name__ == "__main__":
    from tests_of_killed import PLAN
    failures = train_runs(planned(RECIPE, **PLAN), data=".", out=sys.argv[1])
    sys.exit(len(failures))
"""


def test_the_same_command_waits_for_what_is_left_of_it(tmp_path):
    (tmp_path / "tests_of_killed.py").write_text(f"PLAN = {PLAN!r}\n")
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "OMP_NUM_THREADS": "1"}
    out = tmp_path / "runs"
    command = [sys.executable, str(script), str(out)]
    (run,) = planned(RECIPE, **PLAN)
    with subprocess.Popen(command, env=environment) as first:
        end = time.monotonic() + PATIENCE
        while epochs_done(out / run.folder) == 0 and first.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        first.send_signal(signal.SIGKILL)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(read_rows(out / RESULTS)) == 1
    said = (out / run.folder / "sweep.log").read_text()
    assert "resumes after update" in said, "the killed one had written its state"
