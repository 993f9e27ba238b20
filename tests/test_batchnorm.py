"""Batch-norm statistics from unmixed samples, compared with a loop over channels and batches."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import multimix as mm
from two_processes import PATIENCE, environment, two_processes


def network(momentum=0.1):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4, momentum=momentum),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Conv2d(4, 5, 3),
        nn.BatchNorm2d(5),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.BatchNorm1d(5, track_running_stats=False),
        nn.Linear(5, 2),
    )


def samples(count=23):
    return torch.rand(count, 3, 9, 7, generator=torch.Generator().manual_seed(1)) * 2 - 0.3


def loader(batch=5):
    x = samples()
    return DataLoader(TensorDataset(x, torch.zeros(len(x))), batch_size=batch)


def slow_statistics(model, batches):
    """Mean and averaged unbiased variance of the inputs of both layers, without dropout."""
    sums, count = [[0, 0], [0, 0]], 0
    for x in batches:
        for i, (convolution, norm) in enumerate(((0, 1), (4, 5))):
            z = model[convolution](x)
            values = z.transpose(0, 1).flatten(1).double()
            sums[i][0] += len(x) * values.mean(1)
            sums[i][1] += len(x) * values.var(1)
            weight, bias = (p.view(-1, 1, 1) for p in model[norm].parameters())
            mean, var = values.mean(1).view(-1, 1, 1), values.var(1, correction=0).view(-1, 1, 1)
            x = torch.relu(((z - mean) / (var + 1e-5).sqrt() * weight + bias).float())
        count += len(values[0]) // z[0, 0].numel()
    return [[total / count for total in pair] for pair in sums]


def state(model):
    return [(module.training, getattr(module, "momentum", None), dict(module._forward_hooks)) for module in model.modules()]


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("training", [True, False])
def test_equals_the_loop(momentum, training):
    """23 samples in batches of 5: the last one has 3 samples and counts less."""
    model = network(momentum).train(training)
    model[4].eval()
    before, weights = state(model), [w.clone() for w in model.parameters()]
    with torch.no_grad():
        expected = slow_statistics(model, samples().split(5))
    assert mm.recompute_batchnorm(model, loader()) == 2
    for layer, (mean, var) in zip((model[1], model[5]), expected, strict=True):
        torch.testing.assert_close(layer.running_mean.double(), mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(layer.running_var.double(), var, rtol=1e-5, atol=1e-6)
        assert layer.num_batches_tracked == 5
    assert state(model) == before
    assert all(map(torch.equal, weights, model.parameters()))
    assert all(w.grad is None for w in model.parameters())


def test_one_batch_of_all_samples_has_their_statistics():
    model = network()
    mm.recompute_batchnorm(model, [samples()])
    z = model[0](samples())
    torch.testing.assert_close(model[1].running_mean, z.mean((0, 2, 3)))
    torch.testing.assert_close(model[1].running_var, z.var((0, 2, 3)))


def test_frozen_layers_keep_their_statistics():
    model = network()
    kept = [buffer.clone() for buffer in model[1].buffers()]
    assert mm.recompute_batchnorm(model, loader(), frozen=("1",)) == 1
    assert all(map(torch.equal, kept, model[1].buffers()))
    x = model[4](torch.relu(nn.functional.batch_norm(model[0](samples()), *kept[:2])))
    torch.testing.assert_close(model[5].running_mean, x.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="11"):
        mm.recompute_batchnorm(model, loader(), frozen=("11",))
    for wrong in ("1", (1,), (model[1],)):
        with pytest.raises(TypeError, match="frozen"):
            mm.recompute_batchnorm(model, loader(), frozen=wrong)


BAD = {"empty": [], "failing": [samples(4), samples(4)[:, :2]], "NaN": [samples(4), samples(4) / 0 * 0]}


@pytest.mark.parametrize("batches", BAD.values(), ids=BAD)
def test_errors_leave_the_model_unchanged(batches):
    model = network()
    model(samples())
    before = {name: value.clone() for name, value in model.state_dict().items()}, state(model)
    with pytest.raises((ValueError, RuntimeError)):
        mm.recompute_batchnorm(model, batches)
    assert all(torch.equal(before[0][name], value) for name, value in model.state_dict().items())
    assert state(model) == before[1]


def test_broken_statistics_are_replaced():
    """A running mean of NaN must not survive as 0 · NaN."""
    model = network()
    model[1].running_mean.fill_(torch.nan)
    mm.recompute_batchnorm(model, loader())
    assert all(buffer.isfinite().all() for buffer in model.buffers())


def test_batches_of_any_form():
    """Tensors, mappings and forms that only ``forward=`` knows."""
    reference, *others = (network() for _ in range(3))
    mm.recompute_batchnorm(reference, samples().split(5))
    mm.recompute_batchnorm(others[0], [{"input": x} for x in samples().split(5)])
    batches = [("id", {"x": x}) for x in samples().split(5)]
    mm.recompute_batchnorm(others[1], batches, forward=lambda model, batch: model(batch[1]["x"]))
    for model in others:
        assert all(map(torch.equal, reference.buffers(), model.buffers()))


def test_without_batch_norm_nothing_is_read():
    def read():
        raise AssertionError("a batch was read")
        yield

    assert mm.recompute_batchnorm(nn.Linear(3, 2), read()) == 0
    with pytest.raises(TypeError, match="model"):
        mm.recompute_batchnorm(lambda x: x, [])


def test_a_layer_that_runs_twice_counts_both_times():
    norm = nn.BatchNorm1d(3)
    x = samples(8).flatten(1)[:, :3]
    mm.recompute_batchnorm(nn.Sequential(norm, nn.Linear(3, 3, bias=False), norm), [x])
    assert norm.num_batches_tracked == 2
    assert not torch.allclose(norm.running_mean, x.mean(0))


def test_a_compiled_model_gets_the_same_statistics():
    reference, model = network(), network()
    mm.recompute_batchnorm(reference, loader())
    assert mm.recompute_batchnorm(torch.compile(model, backend="eager"), loader()) == 2
    assert all(map(torch.equal, reference.buffers(), model.buffers()))


def test_mixed_training_changes_the_statistics_and_they_come_back():
    """Input mixup at λ = ½ halves the variance of independent samples."""
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    x = torch.randn(4000, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(40):
        mm.mixed_forward(model, mm.InputMixup(), x, torch.arange(4000) % 3, lam=[0.5])
    assert 0.4 < float(model[0].running_var.mean()) < 0.6
    mm.recompute_batchnorm(model, [x])
    torch.testing.assert_close(model[0].running_var, x.var(0))


class SyncedNorm(nn.BatchNorm2d):
    """Batch norm with the statistics of all processes, as SyncBatchNorm, which has no CPU version."""

    def forward(self, x):
        rows = torch.tensor(float(x.numel() // x.shape[1]))
        sums = torch.cat([x.sum((0, 2, 3)), x.square().sum((0, 2, 3)), rows[None]])
        torch.distributed.all_reduce(sums)
        count, channels = sums[-1], x.shape[1]
        mean = sums[:channels] / count
        var = (sums[channels:-1] / count - mean**2) * count / (count - 1)
        self.running_mean.copy_(mean)
        self.running_var.copy_(var)
        return x


def shares(rank):
    """Batches of one rank: 4 and 2 samples, or 6 and 3."""
    parts = samples(15).split([4, 6, 2, 3])
    return [parts[rank], parts[2 + rank]]


def test_two_ranks_average_their_statistics(tmp_path):
    command = two_processes(__file__, tmp_path)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    alone = network()
    mm.recompute_batchnorm(alone, [batch for rank in (0, 1) for batch in shares(rank)])
    for a, b, expected in zip(first["plain"], second["plain"], alone.buffers(), strict=True):
        assert torch.equal(a, b)
        if expected.is_floating_point():
            torch.testing.assert_close(a, expected)
    x = [torch.cat(step) for step in zip(shares(0), shares(1), strict=True)]
    mean = sum(len(z) * z.mean((0, 2, 3)) for z in x) / 15
    var = sum(len(z) * z.var((0, 2, 3)) for z in x) / 15
    for rank in (first, second):
        torch.testing.assert_close(rank["synced"][0], mean)
        torch.testing.assert_close(rank["synced"][1], var)


def main(folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model, synced = network(), SyncedNorm(3)
    mm.recompute_batchnorm(DistributedDataParallel(model), shares(rank))
    mm.recompute_batchnorm(synced, shares(rank))
    torch.save({"plain": list(model.buffers()), "synced": list(synced.buffers())}, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
