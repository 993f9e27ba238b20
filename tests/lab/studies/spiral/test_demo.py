import io

import pytest
from rich.console import Console

from multimix.lab.studies.spiral import demo as module
from multimix.lab.studies.spiral import study
from multimix.lab.studies.spiral.demo import demo
from multimix.lab.studies.spiral.terminal import bar


def console():
    return Console(file=io.StringIO(), width=80)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(module, "QUICK_EPOCHS", 3)
    monkeypatch.setattr(module, "QUICK_SEEDS", 2)


def test_the_demo_trains_writes_and_tells_then_rebuilds_without_training(tiny, tmp_path, monkeypatch):
    told, screen = [], console()
    written = demo(quick=True, out=tmp_path, progress=lambda *now: told.append(now), console=screen)
    assert all(path.exists() for path in (written.page, written.numbers, *written.pictures))
    assert told[-1][1:] == (18, 18)
    text = screen.file.getvalue()
    assert "K = 5 − K = 1" in text
    assert "+3.33" in text
    assert "This was a short run" in text
    assert max(map(len, text.splitlines())) <= 80
    monkeypatch.setattr(study, "trained", None)
    before = written.page.read_bytes()
    written.page.unlink()
    assert demo(quick=True, out=tmp_path, rebuild=True, console=console()) == written
    assert written.page.read_bytes() == before


def test_what_cannot_be_done_is_one_sentence(tiny, tmp_path):
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        demo(seeds=0, out=tmp_path)
    with pytest.raises(ValueError, match="all 6 runs must be in"):
        demo(quick=True, rebuild=True, out=tmp_path)


def test_the_bar_is_drawn_on_a_terminal_only():
    for terminal in (True, False):
        screen = Console(file=io.StringIO(), force_terminal=terminal, width=100)
        with bar(screen) as told:
            told("multi-mix, K = 5, seed 0", 3, 12)
        assert ("multi-mix" in screen.file.getvalue()) == terminal
