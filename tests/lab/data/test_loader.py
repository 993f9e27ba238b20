import gc
import multiprocessing
import os
import re
import subprocess
import sys
import time

import pytest
import torch

from multimix.core.sampling import seeded
from multimix.lab.data import Augment, BadFile, Files, Flip, Images, Loader, Normalise, PaddedCrop, RandomResizedCrop, Resize
from multimix.lab.data.imagenet import read_imagenet
from multimix.lab.data.loader import _raise_bad

NORMALISE = Normalise((0.5,) * 3, (0.5,) * 3)
CROPS = Augment([Flip(), PaddedCrop(8, 2), NORMALISE])


def images(count=23):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8, generator=generator)
    return Images(pixels, torch.arange(count), tuple(map(str, range(count))))


@pytest.fixture
def files(tmp_path, write):
    """Twelve JPEGs of many sizes, their number as the class."""
    found = read_imagenet(write.tree(tmp_path))["train"]
    return Files(found.paths, torch.arange(12), tuple(map(str, range(12))), found.reader)


def equal(first, second):
    first, second = list(first), list(second)
    assert len(first) == len(second)
    assert all(torch.equal(a, b) and torch.equal(c, d) for (a, c), (b, d) in zip(first, second, strict=True))


def test_an_epoch_shows_every_sample_once_in_an_order_of_its_own():
    split = images()
    loader = Loader(split, Augment(), batch=5, seed=3, drop_last=False)
    assert len(loader) == 5
    orders = []
    for number in range(3):
        batches = list(loader.epoch(number))
        assert [len(y) for _, y in batches] == [5, 5, 5, 5, 3]
        for x, y in batches:
            assert torch.equal(x, split.pixels[y].float() / 255)
        orders.append(torch.cat([y for _, y in batches]).tolist())
        assert sorted(orders[-1]) == list(range(23))
        assert orders[-1] == loader.order(number).tolist()
    assert orders[0] != orders[1] != orders[2]
    assert orders[1] == Loader(split, Augment(), batch=4, seed=3).order(1).tolist()
    assert orders[1] != Loader(split, Augment(), batch=4, seed=4).order(1).tolist()


def test_the_last_batch_can_be_dropped_and_order_kept():
    loader = Loader(images(), Augment(), batch=5, shuffle=False, drop_last=True)
    assert [y.tolist() for _, y in loader] == [list(range(i, i + 5)) for i in (0, 5, 10, 15)]
    assert len(loader) == 4
    with pytest.raises(ValueError, match=r"a shuffling loader must be told which epoch: use loader.epoch\(number\)"):
        iter(Loader(images(), Augment(), batch=5))


def test_augmentation_is_drawn_for_every_epoch_and_step_anew():
    loader = Loader(images(), CROPS, batch=23, shuffle=False)
    (first, _), (again, _), (second, _) = (next(loader.epoch(number)) for number in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    same = Images(images().pixels[:1].expand(20, -1, -1, -1), torch.zeros(20, dtype=torch.int64), ("a",))
    steps = [x for x, _ in Loader(same, CROPS, batch=10, shuffle=False).epoch(0)]
    assert not torch.equal(steps[0], steps[1])


def test_streams_are_not_those_that_training_would_key_by_the_same_numbers():
    loader = Loader(images(), CROPS, batch=5, seed=1)
    assert not torch.equal(loader.order(2), torch.randperm(23, generator=seeded(1, 2)))
    split = images(5)
    x, y = next(Loader(split, CROPS, batch=5, seed=1).epoch(2))
    assert not torch.equal(x, CROPS.apply(split.pixels[y], CROPS.draw(5, seeded(1, 2, 0))))


def test_a_resumed_epoch_shows_exactly_what_is_left():
    loader = Loader(images(), CROPS, batch=4, seed=5, drop_last=False)
    whole = list(loader.epoch(7))
    for start in range(len(loader) + 1):
        equal(Loader(images(), CROPS, batch=4, seed=5, drop_last=False).epoch(7, start), whole[start:])
    with pytest.raises(ValueError, match="start must lie in 0 … 6, got 7"):
        loader.epoch(7, 7)


@pytest.mark.parametrize("repeats", [1, 3])
def test_workers_make_no_difference_at_any_start(files, repeats):
    augment = Augment([RandomResizedCrop(9), Flip(), NORMALISE])
    options = {"batch": 5, "seed": 1, "drop_last": False, "repeats": repeats}
    alone, helped = Loader(files, augment, **options), Loader(files, augment, **options, workers=2)
    state = torch.get_rng_state()
    whole = list(alone.epoch(4))
    assert [type(batch) for batch in [*whole, *helped.epoch(4)]] == [tuple] * 6
    for start in range(4):
        equal(helped.epoch(4, start), whole[start:])
    assert torch.equal(torch.get_rng_state(), state)
    # An epoch that is left early does not disturb the next one.
    next(helped.epoch(0))
    equal(helped.epoch(4), whole)


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_together_see_what_one_process_sees(world, repeats):
    options = {"batch": 6, "seed": 2, "drop_last": False, "repeats": repeats}
    whole = list(Loader(images(), CROPS, **options).epoch(3))
    ranks = [list(Loader(images(), CROPS, **options, rank=rank, world=world).epoch(3)) for rank in range(world)]
    for step, (x, y) in enumerate(whole):
        parts = [ranks[rank][step] for rank in range(world)]
        # m-major in every rank: put the ranks side by side inside each of the M draws.
        joined_x = torch.cat([part.unflatten(0, (repeats, -1)) for part, _ in parts], 1).flatten(0, 1)
        joined_y = torch.cat([part.unflatten(0, (repeats, -1)) for _, part in parts], 1).flatten()
        assert torch.equal(joined_x, x)
        assert torch.equal(joined_y, y)
    assert all(len(ranks[rank][0][1]) == repeats * 6 // world for rank in range(world))


def test_ranks_of_files_agree_with_one_process_too(files):
    augment = Augment([Resize((7, 7)), Flip(), NORMALISE])
    whole = list(Loader(files, augment, batch=4, seed=2).epoch(0))
    ranks = [list(Loader(files, augment, batch=4, seed=2, rank=rank, world=2).epoch(0)) for rank in range(2)]
    for (x, y), (x0, y0), (x1, y1) in zip(whole, *ranks, strict=True):
        assert torch.equal(torch.cat([x0, x1]), x)
        assert torch.equal(torch.cat([y0, y1]), y)


def test_a_rank_without_rows_gets_an_empty_batch_of_the_right_shape(files):
    for split, augment in ((images(5), CROPS), (files.take(torch.arange(5)), Augment([Resize((8, 8))]))):
        batches = [list(Loader(split, augment, batch=4, drop_last=False, rank=rank, world=4).epoch(0)) for rank in range(4)]
        assert [tuple(rank[1][0].shape) for rank in batches] == [(1, 3, 8, 8)] + [(0, 3, 8, 8)] * 3
        assert [len(rank[1][1]) for rank in batches] == [1, 0, 0, 0]
        assert all(len(rank) == 2 for rank in batches)


def test_batch_augmentation_repeats_samples_with_draws_of_their_own():
    split = images(10)
    x, y = next(Loader(split, CROPS, batch=10, repeats=4).epoch(0))
    assert x.shape == (40, 3, 8, 8)
    assert torch.equal(y.reshape(4, 10), y[:10].expand(4, 10))
    for m in range(1, 4):
        assert not torch.equal(x[10 * m : 10 * m + 10], x[:10])
    # Without anything random the copies are equal and each is its own sample.
    plain, labels = next(Loader(split, Augment([NORMALISE]), batch=10, repeats=4).epoch(0))
    for row, label in zip(plain, labels, strict=True):
        torch.testing.assert_close(row, split.pixels[label].float() / 127.5 - 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_file_is_one_sentence_in_any_process(files, workers):
    with open(files.paths[7], "wb") as file:
        file.write(b"junk")
    loader = Loader(files, Augment([Resize((7, 7))]), batch=3, shuffle=False, workers=workers)
    batches = loader.epoch(0)
    next(batches)
    next(batches)
    before = time.monotonic()
    with pytest.raises(BadFile, match=r"^[^\n]*3.jpg is not an image in [A-Z, ]*$"):
        next(batches)
    gc.collect()
    assert time.monotonic() - before < 4
    assert not multiprocessing.active_children()


def test_workers_serve_files_only():
    equal(Loader(images(), CROPS, batch=5, workers=2).epoch(0), Loader(images(), CROPS, batch=5).epoch(0))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"batch": 4, "repeats": 0}, "repeats must be at least 1, got 0"),
        ({"batch": 4, "workers": -1}, "workers must be at least 0, got -1"),
        ({"batch": 4, "world": 2, "rank": 2}, "rank must lie in 0 … 1, got 2"),
        ({"batch": 5, "world": 2}, "batch must be a multiple of world, so that all processes have equal shares, got 5 for 2"),
        ({"batch": 24}, "batch must be at most the 23 samples of the split if the last batch is dropped, got 24"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        Loader(images(), CROPS, **options)


TROUBLE = """
import os, resource, signal, sys
import torch
from multimix.lab import cli
from multimix.lab.data.loader import made_ahead

def make(number):
    if sys.argv[1] == "kill" and number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.full((2,), number)

if sys.argv[1] != "kill":
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + int(sys.argv[1]),) * 2)
cli._run = lambda given: list(made_ahead(make, range(100), 1))  # they keep the files open through which they came
sys.exit(cli.main(["train"]))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts open files as Linux shows them")
@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (
            "kill",
            r"a process that reads the data ended \(DataLoader worker \(pid[^\n]*\); fewer of them \(running.workers\) [^\n]*",
        ),
        ("8", "too many open files for the processes that read the data: use fewer [^\n]*"),
        ("30", "too many open files for the processes that read the data: use fewer [^\n]*"),
    ],
)
def test_trouble_with_workers_is_one_sentence(what, sentence):
    done = subprocess.run([sys.executable, "-c", TROUBLE, what], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert re.search(rf"^{sentence}$", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ConnectionResetError(104, "Connection reset by peer"), ".*reset by peer"), (EOFError(), "in the middle of a batch")],
)
def test_a_batch_whose_worker_is_gone_is_one_sentence(error, reason):
    def made():
        yield 1
        raise error

    with pytest.raises(OSError, match=rf"^a process that reads the data ended \({reason}\); fewer of them"):
        list(_raise_bad(made()))
