"""Other libraries for parity tests: installed, or in the folder $MULTIMIX_PEERS, where they stay out of everybody else's way."""

import importlib
import os
import sys
import types
import warnings

import pytest
import torch

LIBRARY = None


def peer(name):
    """The library ``name``; where it cannot be had the test is skipped."""
    global LIBRARY
    folder = os.environ.get("MULTIMIX_PEERS")
    if folder and folder not in sys.path:
        sys.path.append(folder)
    if LIBRARY is None:
        # torchvision beside CPU torch lacks its compiled part and trips over two operators that were never declared.
        LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            LIBRARY.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    if name.startswith("composer"):  # it imports the client of a cloud, which its trainer then does not use
        sys.modules.setdefault("mcli", types.ModuleType("mcli"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a library says about those it imports is no reason to do without it
            return importlib.import_module(name)
    except Exception as error:  # torchvision raises RuntimeError
        pytest.skip(f"{name} cannot be imported: {error}", allow_module_level=True)
