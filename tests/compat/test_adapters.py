"""Each adapter is tested in a process of its own: frameworks patch torch, and what they patch stays patched."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("lightning", "transformers", "composer", "fastai", "keras")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_adapter(name):
    file = Path(__file__).parent / f"in_{name}.py"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs", str(file)]
    command += ["-W", "ignore:Implicitly cleaning up:ResourceWarning"]  # temporary folders of Composer, when the process ends
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode == 5:  # nothing collected
        pytest.skip(next((line for line in said.splitlines() if line.startswith("SKIPPED")), said))
    assert done.returncode == 0, said
