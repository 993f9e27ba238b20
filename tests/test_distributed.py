"""Two gloo processes by torchrun: different draws per rank, the same model after each step."""

import subprocess
from pathlib import Path

import torch

from distributed_step import METHOD, STEPS, clean_steps, stream
from salient import Network
from two_processes import PATIENCE, environment, two_processes


def test_two_ranks(tmp_path):
    script = Path(__file__).with_name("distributed_step.py")
    command = two_processes(script, tmp_path)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
    assert not torch.equal(first["lam"], second["lam"])
    assert not torch.equal(first["target"], second["target"]), "a seeded Mix must draw differently per rank, too"
    assert torch.equal(first["weights"], second["weights"])
    assert torch.equal(first["block"], second["block"]), "a network beside the model must stay the same on all ranks"
    mixed = {tuple(METHOD.choose(generator=stream(step, rank)) is not None for rank in (0, 1)) for step in range(STEPS)}
    assert mixed >= {(True, True), (True, False)}, "ranks throw their own coins, and make a clean pass or none"
    assert torch.equal(first["clean"], second["clean"])
    alone = clean_steps(Network(dropout=0), [0, 1])
    torch.testing.assert_close(first["clean"], alone, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(alone, clean_steps(Network(dropout=0), [0]), atol=1e-3), "both ranks count"
