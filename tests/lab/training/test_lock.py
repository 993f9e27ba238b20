import errno
import fcntl
import os
import re
import signal
import subprocess
import sys

import pytest

from multimix.lab.training.run import locked

HOLDS = """
import multiprocessing, sys, time
from pathlib import Path
from multimix.lab.training.run import locked
with locked(Path(sys.argv[1])):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    print(child.pid, flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_and_a_killed_holder_has_no_lock(tmp_path):
    """Even if a forked worker outlives it."""
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        try:
            sentence = f"^{re.escape(str(tmp_path))} is being trained by another process \\(pid {process.pid}\\)$"
            with pytest.raises(ValueError, match=sentence), locked(tmp_path):
                pytest.fail("it must not come in")
            process.kill()
            process.wait()
            os.kill(child, 0)  # it is still there
            with locked(tmp_path):
                pass
        finally:
            process.kill()
            os.kill(child, signal.SIGKILL)


def test_one_process_twice_and_after_an_error(tmp_path):
    with locked(tmp_path / "new"):
        with pytest.raises(ValueError, match="by another process"), locked(tmp_path / "new"):
            pytest.fail("it must not come in")
        with locked(tmp_path / "other"):
            pass
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "new"):
        _ = 1 / 0
    with locked(tmp_path / "new"):
        pass


def test_a_fork_while_it_is_held_leaves_the_holder_its_lock(tmp_path):
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(ValueError, match="by another process"), locked(tmp_path):
            pass


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("", "by another process$"),
        ("nonsense\n", "by another process$"),
        ("12 elsewhere\n", r"by another process \(pid 12 on elsewhere\)$"),
        ("12\n", r"by another process \(pid 12\)$"),
    ],
)
def test_who_it_is(tmp_path, written, sentence):
    with locked(tmp_path):
        (tmp_path / ".lock").write_text(written)
        with pytest.raises(ValueError, match=sentence), locked(tmp_path):
            pass


def test_a_longer_name_from_before_is_gone(tmp_path):
    (tmp_path / ".lock").write_text("123456789 somewhere-with-a-long-name" * 3)
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text().split()[0] == str(os.getpid())
        assert len((tmp_path / ".lock").read_text().splitlines()) == 1


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
def test_without_locks_it_goes_on(tmp_path, monkeypatch, number):
    monkeypatch.setattr(fcntl, "flock", lambda handle, operation: _refuse(number))
    inside = []
    with locked(tmp_path), locked(tmp_path):
        inside.append("both")
    assert inside == ["both"]


def test_a_lock_that_fails_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda handle, operation: _refuse(errno.EIO))
    with pytest.raises(OSError, match=r"^cannot write '.*\.lock': Input/output error$"), locked(tmp_path):
        pass


def _refuse(number):
    raise OSError(number, os.strerror(number))


def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="^out must be a folder, '.*file' is a file$"), locked(tmp_path / "file"):
        pass
    (tmp_path / "run" / ".lock").mkdir(parents=True)
    with pytest.raises(OSError, match=r"^cannot write '.*\.lock': Is a directory$"), locked(tmp_path / "run"):
        pass
