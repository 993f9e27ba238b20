"""The real data, or the parts of them that are there, in the folder MULTIMIX_DATA; without them a test is skipped and says so."""

import os

import pytest

from multimix.lab.data import DATASETS, read


def real_folder(name):
    folder = os.environ.get("MULTIMIX_DATA")
    if not folder:
        pytest.skip("MULTIMIX_DATA is not set: there are no real data")
    if not any(os.path.isdir(os.path.join(folder, official)) for official in DATASETS[name].folders):
        pytest.skip(f"{folder} has no {name}")
    return folder


def real(name, **options):
    return read(name, real_folder(name), **options)
