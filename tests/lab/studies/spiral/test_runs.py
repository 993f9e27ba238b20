"""Runs on disk: what is stored, resuming after a kill or Ctrl-C, rebuilding, and the demo from end to end."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from rich.console import Console

from multimix.lab.images import read_image_grid
from multimix.lab.recipes.spiral import ARMS, K1, K5, NONE, SpiralSettings
from multimix.lab.report.pages.spiral import spiral_frame
from multimix.lab.studies.spiral import demo, runs
from multimix.lab.studies.spiral.data import spiral_data
from multimix.lab.studies.spiral.pictures import SIDE, boundary_field, boundary_grid
from multimix.lab.studies.spiral.training import net_with_weights

SHORT = SpiralSettings(epochs=3)
KILLED = SpiralSettings(epochs=60)

CHILD = """
import sys
from multimix.lab.studies.spiral import runs
from multimix.lab.images import read_image_grid
from multimix.lab.recipes.spiral import SpiralSettings
runs.group_size = lambda arm: 1
runs.run_study(SpiralSettings(epochs=60), seeds=range(4), out=sys.argv[1])
"""


def outcome(result):
    """What must not depend on interruptions: everything but the clock."""
    return {name: [(run.seed, run.right, run.tested, run.weights) for run in some] for name, some in result.runs.items()}


def units(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*/*-seed*.json")}


def test_accuracy_is_counted_on_clean_test_labels(tmp_path):
    result = runs.run_study(SHORT, seeds=[2, 0], out=tmp_path)
    assert result.seeds == (2, 0)
    for arm in ARMS:
        for run, seed in zip(result.runs[arm.name], (2, 0), strict=True):
            assert run.seed == seed
            data, net = spiral_data(SHORT, seed), net_with_weights(torch.tensor(run.weights), SHORT.slope)
            right = sum(int(net(point.float()).argmax()) == label for point, label in zip(data.x_test, data.y_test, strict=True))
            assert (run.right, run.tested) == (right, 600)
            assert run.accuracy == pytest.approx(100 * right / 600)
    assert len({run.weights for some in result.runs.values() for run in some}) == 6


def test_the_median_run_is_in_the_middle():
    of_arm = tuple(runs.SpiralRun(seed, right, 600, (), 0.0, {}) for seed, right in enumerate([500, 590, 400, 550, 510]))
    result = runs.SpiralResult(SHORT, tuple(range(5)), {arm.name: of_arm for arm in ARMS})
    assert result.median_run(K5).seed == 4
    even = runs.SpiralResult(SHORT, tuple(range(4)), {arm.name: of_arm[:4] for arm in ARMS})
    assert even.median_run(NONE).right == 500


@pytest.mark.slow
def test_killed_at_any_moment_it_keeps_what_is_finished_and_ends_the_same(tmp_path):
    straight = runs.run_study(KILLED, seeds=range(4), out=tmp_path / "straight")
    chance, out = random.Random(), tmp_path / "killed"
    for at_least in (1, 5):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(out)], env={**os.environ, "OMP_NUM_THREADS": "1"})
        while len(units(out)) < at_least:
            assert child.poll() is None
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    kept, said = units(out), []
    assert 5 <= len(kept) < 12
    resumed = runs.run_study(KILLED, seeds=range(4), out=out, note=said.append)
    assert outcome(resumed) == outcome(straight)
    assert {name: units(out)[name] for name in kept} == kept
    assert len(said) == 1
    assert said[0].startswith(f"{len(kept)} of 12 runs are already in ")


def test_stopped_by_the_keyboard_it_keeps_finished_groups_and_goes_on(tmp_path):
    told = []

    def stop_in_the_second_group(words, done, total):
        told.append((words, done, total))
        if done == 2 * 3 + 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.run_study(SHORT, seeds=range(2), out=tmp_path, progress=stop_in_the_second_group)
    assert sorted(units(tmp_path)) == ["none-seed0000.json", "none-seed0001.json"]
    assert told == [
        *[("no mixup, seeds 0, 1", done, 18) for done in (0, 2, 4, 6)],
        *[("manifold mixup, K = 1, seeds 0, 1", done, 18) for done in (6, 8)],
    ]
    told.clear()
    resumed = runs.run_study(SHORT, seeds=range(2), out=tmp_path, progress=lambda *now: told.append(now), note=lambda words: None)
    assert (told[0][1], told[-1][1]) == (6, 18)
    assert outcome(resumed) == outcome(runs.run_study(SHORT, seeds=range(2), out=tmp_path / "other"))


def test_a_damaged_run_is_named_and_trained_again_alone(tmp_path, monkeypatch):
    first, said = runs.run_study(SHORT, seeds=range(3), out=tmp_path), []
    path = next(tmp_path.glob("*/multimix-k5-seed0001.json"))
    path.write_text(path.read_text().replace('"right": ', '"right": 1'))
    train, groups = runs.train_networks, []
    monkeypatch.setattr(runs, "train_networks", lambda *given, **named: groups.append(given[2]) or train(*given, **named))
    second = runs.run_study(SHORT, seeds=range(3), out=tmp_path, note=said.append)
    assert groups == [[1]]
    assert "multimix-k5-seed0001.json is damaged" in said[0]
    assert path.with_name(path.name + ".corrupt").exists()
    assert outcome(second) == outcome(first)


def test_more_seeds_add_to_a_study_and_other_settings_begin_another(tmp_path):
    few = runs.run_study(SHORT, seeds=range(2), out=tmp_path)
    said = []
    more = runs.run_study(SHORT, seeds=range(3), out=tmp_path, note=said.append)
    assert said[0].startswith("6 of 9 runs are already in ")
    assert all(outcome(more)[arm.name][:2] == outcome(few)[arm.name] for arm in ARMS)
    runs.run_study(SpiralSettings(epochs=2), seeds=[0], out=tmp_path)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2


def test_stored_runs_are_read_without_training(tmp_path, monkeypatch):
    result = runs.run_study(SHORT, seeds=range(2), out=tmp_path)
    monkeypatch.setattr(runs, "train_networks", None)
    assert runs.run_study(SHORT, seeds=range(2), out=tmp_path) == result


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1]])
def test_seeds_that_cannot_be_used_are_one_sentence(tmp_path, seeds):
    with pytest.raises(ValueError, match="seeds must be different numbers, at least 0 and at least one, got "):
        runs.run_study(SHORT, seeds=seeds, out=tmp_path)


def test_runs_say_what_they_were_obtained_with_on_one_thread(tmp_path):
    torch.set_num_threads(2)
    try:
        result = runs.run_study(SHORT, seeds=[0], out=tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    run = result.runs[K1.name][0]
    assert run.environment["torch"] == torch.__version__
    assert run.environment["threads"] == "1"
    assert run.cpu_seconds > 0
    stored = json.loads(next(tmp_path.glob("*/manifold-k1-seed0000.json")).read_text())
    assert stored["result"]["right"] == run.right


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(demo, "QUICK_EPOCHS", 3)
    monkeypatch.setattr(demo, "QUICK_SEEDS", 2)


def test_the_demo_stores_rows_and_pictures_and_does_not_train_twice(tiny, tmp_path, monkeypatch):
    calls = []
    path = demo.run_demo(quick=True, out=tmp_path, progress=lambda *now: calls.append(now))
    assert calls[-1][1:] == (18, 18)
    assert path == tmp_path / "spiral-quick.json"
    content, frame = json.loads(path.read_text()), spiral_frame(path)
    assert content["settings"]["epochs"] == 3
    assert set(content["rows"][0]) == {"arm", "seed", "right", "tested", "accuracy", "cpu_seconds", "environment"}
    assert list(frame.arm) == [arm.name for arm in ARMS for _ in range(2)]
    assert list(frame.seed) == [0, 1] * 3
    stored = json.loads(next(tmp_path.glob("*/multimix-k5-seed0001.json")).read_text())["result"]
    assert frame.right.iloc[-1] == stored["right"]
    assert frame.accuracy.iloc[-1] == 100 * stored["right"] / stored["tested"]
    grid = read_image_grid(tmp_path / "spiral-quick-boundaries.npz")
    assert grid.images.shape == (4, SIDE, SIDE, 3)
    assert grid.titles[0] == "training: 400 points,\n80 labels flipped (seed 0)"
    seed, accuracy = min(zip(frame.seed[4:], frame.accuracy[4:], strict=True), key=lambda pair: pair[1])
    assert grid.titles[3] == f"multi-mix, K = 5\nmedian run (seed {seed}): {accuracy:.2f} %"
    before = {file.name: file.read_bytes() for file in tmp_path.glob("spiral-quick*")}
    monkeypatch.setattr(runs, "train_networks", None)
    demo.run_demo(quick=True, out=tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.glob("spiral-quick*")} == before


def test_pictures_show_the_probability_of_the_network(tmp_path):
    result = runs.run_study(SHORT, seeds=[0], out=tmp_path)
    field = boundary_field(result.runs[K5.name][0], SHORT)
    net = net_with_weights(torch.tensor(result.runs[K5.name][0].weights), SHORT.slope)
    corner = net(torch.tensor([[1.15, 1.15]])).softmax(1)[0, 1]  # the upper right one
    assert field[0, -1] == pytest.approx(corner.item(), abs=1e-5)
    blank = runs.SpiralRun(0, 300, 600, (0.0,) * 326, 1.0, {})  # every probability is 1/2: no shade, no boundary
    images = boundary_grid(runs.SpiralResult(SHORT, (0,), {arm.name: (blank,) for arm in ARMS})).images
    assert (images[0] == images[3]).all()
    assert tuple(images[3][0, 0]) == (255, 255, 255)


def test_fewer_than_one_seed_is_an_error(tiny, tmp_path):
    with pytest.raises(ValueError, match="seeds"):
        demo.run_demo(seeds=0, out=tmp_path)


def test_the_bar_is_drawn_on_a_terminal_only():
    for terminal in (True, False):
        screen = Console(file=io.StringIO(), force_terminal=terminal, width=100)
        with runs.progress_bar(screen) as report:
            report("multi-mix, K = 5, seed 0", 3, 12)
        assert ("multi-mix" in screen.file.getvalue()) == terminal
