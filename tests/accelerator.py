"""The pretend accelerator, a torch device called ``sim`` with a counter of what crosses between it and the host.

Its folder is $MULTIMIX_SIMDEVICE, or ../shared/tools/simdevice beside the checkout; it is built once by a C++ compiler and ninja.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
SECONDS = 600  # the build takes half a minute of one core


def told_by(script, *arguments, tmp_path_factory):
    """What a script of this folder printed as JSON, in a process with the device: it could not be taken off again."""
    folder = _folder(tmp_path_factory.getbasetemp().parent)
    path = os.pathsep.join([str(folder), str(HERE), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PATH": _path_with_ninja()}
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def _folder(shared):
    """A copy of the device's sources, the same for all test processes, since it is built where it lies."""
    source = Path(os.environ.get("MULTIMIX_SIMDEVICE") or HERE.parents[1] / "shared" / "tools" / "simdevice")
    if not (source / "sim.cpp").is_file():
        pytest.skip("there is no pretend accelerator: MULTIMIX_SIMDEVICE is not set")
    if shutil.which("c++") is None or shutil.which("ninja", path=_path_with_ninja()) is None:
        pytest.skip("the pretend accelerator cannot be built: no C++ compiler, or no ninja")
    files = sorted(path for path in source.iterdir() if path.suffix in (".cpp", ".py"))
    content = b"".join(path.read_bytes() for path in files) + torch.__version__.encode()
    copy = shared / f"sim-{hashlib.sha256(content).hexdigest()[:16]}"
    if not copy.is_dir():
        made = tempfile.mkdtemp(dir=shared)
        for path in files:
            shutil.copy(path, made)
        try:
            os.rename(made, copy)
        except OSError:  # another process was quicker
            shutil.rmtree(made)
    return copy


def _path_with_ninja():
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
