"""One thread per test process: two are slower for work this small, and results must not depend on it."""

import os

import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)

# No test may fail because the machine is slow or busy.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# Networks of the tests, whose runs are evaluated in many of them; tests/lab/test_trust.py is about those that are not named.
os.environ["MULTIMIX_TRUST"] = "trial:DropNet trial:PlainNet trial:Nothing tree:TreeNet"
