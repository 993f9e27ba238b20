"""Memory of mixed batches is reused once nothing refers to it, and never before."""

import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import multimix as mm
from multimix.core import memory
from multimix.core.sampling import seeded as stream
from oracles import seeded

X = torch.rand(32, 3, 24, 20, generator=seeded(0))  # 184 kB: large enough for the pool
Y = torch.arange(32) % 7
SMALL = 4


@pytest.fixture(autouse=True)
def empty_pool():
    gc.collect()
    mm.release_memory()
    yield
    gc.collect()
    mm.release_memory()


def mixed(k=2, method=mm.InputMixup):
    return method(k=k).plan(X, generator=seeded(k)).mix(X)


def overwrite(times=6):
    """Ask for more memory of the same size than is kept, and fill it with something else."""
    held = [mixed() for _ in range(times)]
    for batch in held:
        batch.fill_(-1)


def test_memory_is_used_again():
    places = {mixed().data_ptr() for _ in range(10)}
    assert len(places) == 1
    places = set()
    batch = None
    for _ in range(10):  # as in a training loop: the old batch is held until the new one is there
        batch = mixed()
        places.add(batch.data_ptr())
    assert len(places) == 2


def test_two_batches_that_are_held_never_share_memory():
    held = [mixed() for _ in range(8)]
    spans = sorted((batch.data_ptr(), batch.data_ptr() + batch.nbytes) for batch in held)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


HOLDERS = {
    "the batch": lambda batch: batch,
    "a view": lambda batch: batch.view(-1),
    "a slice": lambda batch: batch[3:5, 1],
    "a row of unbind": lambda batch: batch.unbind(0)[-1],
    "detach": lambda batch: batch.detach(),
    "an alias by set_": lambda batch: torch.empty(0).set_(batch.untyped_storage()),
    "its storage": lambda batch: batch.untyped_storage(),
    "a NumPy array": lambda batch: batch.numpy(),
    "a NumPy slice": lambda batch: batch.numpy()[1:, 0],
    "a memoryview": lambda batch: memoryview(batch.numpy()),
    "DLPack": lambda batch: torch.from_dlpack(batch),
    "a capsule": lambda batch: batch.__dlpack__(),
    "a leaf": lambda batch: batch.requires_grad_(),
    "what autograd saved": lambda batch: (nn.Parameter(torch.ones(3, 1, 1)) * batch).sum(),
    "a closure": lambda batch: lambda: batch,
    "an exception": lambda batch: caught(batch),
    "a cycle": lambda batch: cycle(batch),
}


def caught(batch):
    try:
        raise ValueError(batch)
    except ValueError as error:
        return error


def cycle(batch):
    ring = [batch]
    ring.append(ring)
    return ring


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_whoever_holds_a_batch_sees_it_unchanged(hold):
    batch = mixed()
    expected = batch.detach().numpy().tobytes()
    (lease,) = memory._leases.values()
    block = lease.block
    del lease
    holder = hold(batch)
    del batch
    overwrite()
    assert block.tobytes() == expected
    mm.release_memory()
    del holder
    gc.collect()
    assert [free is block for free, _ in memory._free] == [True], "and then it is free"


def test_a_half_finished_backward_pass_keeps_what_it_needs():
    conv = nn.Conv2d(3, 2, 3)
    first, second = (conv(mixed()).square().mean() for _ in range(2))
    alone = torch.autograd.grad(conv(mixed()).square().mean(), conv.weight)[0]
    overwrite()
    for loss in (first, second):
        assert torch.equal(torch.autograd.grad(loss, conv.weight)[0], alone)


def test_a_graph_that_is_kept_and_one_that_fails():
    conv = nn.Conv2d(3, 2, 3)
    loss = conv(mixed()).square().mean()
    loss.backward(retain_graph=True)
    once = conv.weight.grad.clone()
    overwrite()
    loss.backward()
    torch.testing.assert_close(conv.weight.grad, 2 * once)

    def fail(grad):
        raise RuntimeError("stopped")

    out = conv(mixed())
    out.register_hook(fail)
    with pytest.raises(RuntimeError, match="stopped"):
        out.square().mean().backward()
    overwrite()


def test_threads_never_get_the_same_memory():
    """Every thread marks its batch, waits for the others, and looks again."""
    barrier, threads = threading.Barrier(4), 4

    def work(own):
        for turn in range(30):
            batch = mixed()
            batch.fill_(own + 10 * turn)
            barrier.wait()
            if not bool((batch == own + 10 * turn).all()):
                return False
            barrier.wait()
        return True

    with ThreadPoolExecutor(threads) as executor:
        assert all(executor.map(work, range(threads)))


def test_what_another_thread_holds_is_not_handed_out():
    kept, go, done = [], threading.Event(), threading.Event()

    def hold():
        batch = mixed()
        kept.append(batch.clone())
        done.set()
        go.wait()
        kept.append(batch.clone())

    thread = threading.Thread(target=hold)
    thread.start()
    done.wait()
    overwrite()
    go.set()
    thread.join()
    assert torch.equal(*kept)


def test_batches_moved_to_shared_memory_leave_their_block():
    """As data-loader workers do it: the other process reads the shared memory after this one has let go of the batch."""
    batch = mixed()
    expected, before = batch.clone(), batch.data_ptr()
    batch.share_memory_()
    assert batch.data_ptr() != before
    assert mixed().data_ptr() == before, "the block is free, because the batch does not lie in it any more"
    overwrite()
    assert torch.equal(batch, expected)


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_batches_from_workers_stay_as_they_are(start):
    own = mixed()  # a block in use, and one that is free, when the process is forked
    mixed()
    expected = own.clone()
    data = TensorDataset(X.repeat(4, 1, 1, 1), Y.repeat(4))
    loader = DataLoader(
        data,
        32,
        collate_fn=mm.Mix(mm.InputMixup(k=2), 7, seed=0).collate,
        num_workers=1,
        prefetch_factor=4,
        multiprocessing_context=start,
    )
    batches = [x for x, _ in loader]
    again = [x.clone() for x in batches]
    overwrite()
    alone = mm.Mix(mm.InputMixup(k=2), 7, seed=0)
    alone._stream = (os.getpid(), 0, -1), stream(0, 0, 0, 1)  # that of the worker
    for batch, copy in zip(batches, again, strict=True):
        assert torch.equal(batch, copy)
        assert torch.equal(batch, alone(X, Y)[0])
    assert torch.equal(own, expected)


def test_little_is_kept_and_not_for_long():
    held = [mixed() for _ in range(10)]
    size = held[0].nbytes
    del held
    assert [len(block) for block, _ in memory._free] == [size] * memory.MAX_FREE_BLOCKS
    small = mm.InputMixup(k=1).plan(X[:16], generator=seeded(0))
    for _ in range(memory.MAX_MISSES + 2):
        small.mix(X[:16])
    assert [len(block) for block, _ in memory._free] == [X[:16].nbytes], "blocks of a size that is not asked for any more go"
    mm.release_memory()
    assert len(memory._free) == 0


def test_a_block_serves_somewhat_smaller_batches():
    place = mixed().data_ptr()
    plan = mm.InputMixup(k=2).plan(X[:20], generator=seeded(0))
    last = plan.mix(X[:20])
    assert last.data_ptr() == place
    assert last.untyped_storage().nbytes() == last.nbytes
    assert mm.InputMixup(k=1).plan(X[:10], generator=seeded(0)).mix(X[:10]).data_ptr() != place


def test_small_batches_half_precision_and_gradients_have_memory_of_their_own():
    for x in (X[:SMALL, :, :5, :5], X.half(), X.clone().requires_grad_()):
        mm.InputMixup(k=2).plan(x, generator=seeded(0)).mix(x)
    assert len(memory._free) == len(memory._leases) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "shape",
    [
        (32, 3, 24, 20),
        (64, 1, 24, 20),
        (32, 3, 1, 700),
        (16, 3, 4, 24, 20),
        (40, 900),
        (2, 3, 20000),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_it_is_laid_out_as_torch_does_it(dtype, shape, channels_last):
    if channels_last and len(shape) < 4:
        pytest.skip("needs places in two or three dimensions")
    layout = torch.contiguous_format
    if channels_last:
        layout = {4: torch.channels_last, 5: torch.channels_last_3d}[len(shape)]
    made = memory.empty(shape, dtype, layout)
    expected = torch.empty(shape, dtype=dtype, memory_format=layout)
    assert made.shape == expected.shape
    assert made.stride() == expected.stride()
    assert made.dtype == dtype
    assert made.data_ptr() % 64 == 0
    assert not made._is_view()
    assert not made.requires_grad


def test_modes_are_those_of_the_call():
    with torch.inference_mode():
        assert mixed().is_inference()
    batch = mixed()
    assert not batch.is_inference()
    weight = torch.ones((), requires_grad=True)
    (batch * weight).sum().backward()
    batch.mul_(weight)  # as any other tensor
    assert batch.grad_fn is not None


def test_a_batch_dies_when_it_is_let_go():
    batch = mixed()
    died = weakref.ref(batch)
    del batch
    assert died() is None
    assert len(memory._leases) == 0


@pytest.mark.parametrize("size", [2, 24], ids=["small", "large"])
def test_batches_from_pinned_memory_are_mixed_into_pinned_memory(monkeypatch, size):
    """As far as a machine without a GPU goes: what torch is asked for."""
    asked, empty = [], torch.empty
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: True)
    monkeypatch.setattr(
        torch,
        "empty",
        lambda *args, pin_memory=False, **how: asked.append(pin_memory) or empty(*args, **how),
    )
    x = X[..., :size].contiguous(memory_format=torch.channels_last)
    x_mix, _ = mm.Mix(mm.CutMix(k=2), 7, seed=0)(x, Y)
    assert any(asked)
    monkeypatch.undo()
    expected, _ = mm.Mix(mm.CutMix(k=2), 7, seed=0)(x, Y)
    assert torch.equal(x_mix, expected)
    assert x_mix.is_contiguous(memory_format=torch.channels_last)


KEEP_MEMORY = """
import json, resource, torch
import multimix as mm

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.zeros(16, 2**20)  # 64 MB: more than the C library keeps by default
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

kept = mm.keep_memory() if KEEP else False
faults()
first = faults()
mm.release_memory()
print(json.dumps([kept, first, faults()]))
"""


def measured(keep):
    command = [sys.executable, "-c", f"KEEP = {keep}" + KEEP_MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_freed_memory_is_kept_after_keep_memory_until_release_memory():
    kept, again, released = measured(True)
    if not kept:
        pytest.skip("another C library than glibc")
    _, fresh, _ = measured(False)
    assert again * 4 < released, "after release_memory pages are faulted in once more"
    assert again * 20 < fresh, "without keep_memory each time"
