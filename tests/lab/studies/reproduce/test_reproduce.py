"""The whole paper at smoke scale on real data, by one command; killed and resumed."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from browser import CHROMIUM, opened, sound
from multimix.lab.cli import main
from multimix.lab.storage import read_rows
from multimix.lab.studies.reproduce.plan import choose
from real_data import real_folder

pytestmark = pytest.mark.slow


def data():
    for name in ("cifar100", "tiny_imagenet", "cub200", "speech_commands_v1"):
        folder = real_folder(name)
    return folder


def test_every_run_is_trained_once_and_every_table_filled(tmp_path):
    """One test, not several that share a fixture: every process that tests would reproduce the paper for itself."""
    out = tmp_path / "paper"
    assert main(["reproduce", "--scale", "smoke", "--data", data(), "--out", str(out)]) == 0
    rows = read_rows(out / "results.jsonl", print)
    keys = [(row["recipe"], row["arm"], row["k"], row["seed"]) for row in rows]
    assert len(set(keys)) == len(keys)
    assert set(keys) == {(*training, 0) for one in choose(()) for training in one.trainings}
    page = out / "paper-smoke.html"
    text = page.read_text()
    for one in choose(()):
        assert re.search(rf"<h2>{re.escape(one.label)}: ", text), one.label
    assert "not run at this scale" not in text
    claims = sum(len(one.claims) for one in choose(()))
    assert f"Of {claims} claims of the paper: " in text
    assert text.count("<img") + text.count("<svg ") == 1 + 7  # beside the headline, and Figs. 2 to 8
    assert not CHROMIUM or sound(page, tmp_path)
    assert not CHROMIUM or opened(page, tmp_path)[1] == []


def test_killed_and_resumed_it_gives_the_same_page(tmp_path):
    folder = data()
    words = ["reproduce", "--scale", "smoke", "--only", "II", "--data", folder, "--out"]
    command = [sys.executable, "-m", "multimix.lab.cli", *words, str(tmp_path / "killed")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    results = tmp_path / "killed" / "results.jsonl"
    while process.poll() is None and not (results.exists() and results.read_text().count("\n") >= 2):
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 2 <= results.read_text().count("\n") < 5
    for name in ("killed", "whole"):
        assert main([*words, str(tmp_path / name)]) == 0
    killed, whole = ((tmp_path / name / "paper-smoke-II.html").read_text() for name in ("killed", "whole"))
    assert killed == whole
