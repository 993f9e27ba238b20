"""Child processes find ``trial`` by its name, too: the networks of these tests are given by import path."""

import os
from pathlib import Path

TESTS = str(Path(__file__).parents[2])
before = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([TESTS, *before]))
