"""Run by torchrun in test_distributed.py: DDP steps with hidden mixing and with a clean loss; every rank writes what came out."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import multimix as mm
from multimix.methods.base import trained_parameters
from multimix.methods.samix.block import NewBlock
from salient import Network, Salient, images, labels

METHOD = Salient(k=3, p=0.7, clean_weight=0.5)
STEPS = 4


def stream(step: int, rank: int) -> torch.Generator:
    return torch.Generator().manual_seed(10 * step + rank)


def clean_steps(model: nn.Module, ranks: list[int]) -> torch.Tensor:
    """The weights after steps with a clean loss on the batches of ``ranks``, whose gradients are averaged."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in ranks:
            x, y = images() + rank, labels().roll(rank)
            if rank == 0:
                mm.input_saliency(model, x, y)  # on one rank alone: nothing in it may wait for the others
            out = mm.mixed_forward(model, METHOD, x, y, generator=stream(step, rank))
            (out.loss() / len(ranks)).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def block_steps() -> torch.Tensor:
    """The weights of a block beside a model after steps of both, its start drawn differently by every rank."""
    torch.manual_seed(10 + dist.get_rank())
    core = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    method = mm.SAMix(k=2, p=0.5, block=NewBlock("0")).bind(core, torch.rand(8, 3, 8, 8))
    mm.distributed.broadcast_networks(method)
    model, block = DistributedDataParallel(core), method.modules["block"]
    optimizer = torch.optim.SGD([*model.parameters(), *trained_parameters(method)], lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = torch.rand(6, 3, 8, 8), torch.arange(6) % 3
        generator = stream(step, dist.get_rank())
        mm.mixed_forward(model, method, x, y, generator=generator).loss().backward()
        mm.distributed.average_gradients(method)
        optimizer.step()
        method.after_step(model)
    return nn.utils.parameters_to_vector(block.parameters()).detach()


def main(folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)  # the same on every rank, as is common
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(dist.get_rank()))
    method = mm.OneOf((mm.ManifoldMixup(k=3, layers=("0", "1")), mm.InputMixup(k=3)))
    lams = []
    for _ in range(4):
        plan = method.plan(x)
        lams.append(plan.lam)
        target = plan.mix_target(torch.arange(5) % 3, 3)
        loss = nn.functional.cross_entropy(mm.plans.run_plan(model, plan, x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mixer = mm.Mix(mm.InputMixup(), 3, seed=7)
    seeded_target = mixer(x, torch.arange(5) % 3)[1]
    result = {
        "lam": torch.stack(lams),
        "weights": nn.utils.parameters_to_vector(model.parameters()).detach(),
        "target": seeded_target,
        "block": block_steps(),
        "clean": clean_steps(DistributedDataParallel(Network(dropout=0)), [dist.get_rank()]),
    }
    torch.save(result, f"{folder}/rank{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
