"""Two gloo processes by torchrun: different draws per rank, the same model after each step."""

import subprocess
import sys
from pathlib import Path

import torch


def test_two_ranks(tmp_path):
    script = Path(__file__).with_name("distributed_step.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
    assert not torch.equal(first["lam"], second["lam"])
    assert not torch.equal(first["target"], second["target"]), "a seeded Mix must draw differently per rank, too"
    assert torch.equal(first["weights"], second["weights"])
