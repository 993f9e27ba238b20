"""One thread per test process: two are slower for work this small, and results must not depend on it."""

import torch

torch.set_num_threads(1)
