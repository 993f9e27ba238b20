import io
import re
import sys

import pytest
from rich.console import Console

from multimix.lab.terminal import duration
from multimix.lab.training.log import Epoch
from multimix.lab.training.recorder import Progress

TITLE = "table (small): puzzlemix, K = 5, seed 0"


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def done(number, updates, error=None):
    return Epoch(number, updates, 0.1, 2.0, 40.0, 1.0, 500, 2500, 5.0, 5.0, error=error)


def shown(epochs=10, total=100, before=0, terminal=False, width=80):
    """A progress with a clock in our hands, what it notes, and what it draws."""
    notes, clock, paper = [], Clock(), io.StringIO()
    console = Console(file=paper, force_terminal=terminal, width=width, color_system=None)
    progress = Progress(TITLE, total, epochs, before, note=notes.append, console=console, clock=clock)
    return progress, notes, clock, paper


def trained(progress, clock, updates, epoch, seconds=1.0, images=50, loss=2.0, accuracy=25.0):
    for update in updates:
        clock.now += seconds
        progress.step(update, epoch, loss, accuracy, images)


def drawn(progress, width=80):
    paper = io.StringIO()
    Console(file=paper, width=width, color_system=None).print(progress.get_renderable())
    return paper.getvalue()


def test_a_line_tells_everything():
    progress, notes, clock, _ = shown()
    with progress:
        trained(progress, clock, range(1, 11), epoch=1, loss=2.3456)
        progress.doing("evaluating")
        clock.now += 4
        progress.epoch(done(1, 10, error=55.25))
    # Loss, accuracy and speed are those of the epoch; 90 updates of 1 s and nine evaluations of 4 s are 126 s.
    assert notes == [f"{TITLE}: epoch 1/10, loss 2, train accuracy 40.0 %, error 55.25 %, 100 images/s, 2 min left"]


def test_lines_keep_their_distance_but_the_last_is_always_told():
    progress, notes, clock, _ = shown()
    told = []
    with progress:
        for number in range(1, 11):
            trained(progress, clock, range(10 * number - 9, 10 * number + 1), number, seconds=0.3)
            progress.epoch(done(number, 10 * number, error=50.0))
            told.append((number, clock.now))
    numbers = [int(re.search(r"epoch (\d+)/10", line)[1]) for line in notes]
    # 3 s an epoch: the first, then every fourth, which is 12 s later; the last although 3 s have passed.
    assert numbers == [1, 5, 9, 10]
    assert "left" in notes[0]
    assert "left" not in notes[-1]


def test_what_was_done_before_is_no_speed():
    progress, _, clock, _ = shown(total=1000, before=900)
    with progress:
        trained(progress, clock, range(901, 911), epoch=10, seconds=2.0)
        assert "25 images/s, 3 min left" in drawn(progress)  # 90 updates of 2 s


def test_time_left_is_by_the_last_epochs_and_counts_evaluation():
    progress, _, clock, _ = shown(epochs=40, total=400)
    with progress:
        for number in range(1, 21):
            trained(progress, clock, range(10 * number - 9, 10 * number + 1), number, seconds=50.0 if number < 11 else 1.0)
            progress.doing("evaluating")
            assert f"epoch {number}/40, evaluating" in drawn(progress)
            clock.now += 20
            progress.epoch(done(number, 10 * number, error=50.0))
        assert "100 images/s, 10 min left" in drawn(progress)  # 20 epochs of 10 s and 20 s
        trained(progress, clock, [201], epoch=21)
        assert "evaluating" not in drawn(progress)


def test_loss_and_accuracy_are_those_of_the_last_updates_whatever_they_are():
    progress, _, clock, _ = shown(total=10_000)
    with progress:
        trained(progress, clock, range(1, 11), epoch=1, loss=9.0, accuracy=1.0)
        assert "loss 9, train accuracy 1.0 %" in drawn(progress)
        trained(progress, clock, range(11, 111), epoch=1)
        assert "loss 2, train accuracy 25.0 %" in drawn(progress)
        trained(progress, clock, [111, 112], epoch=1, loss=1.7e308)
        assert "loss inf" in drawn(progress)


def test_the_error_is_that_of_the_last_evaluation():
    progress, notes, clock, _ = shown()
    with progress:
        for number, error in ((1, None), (2, 41.5), (3, None)):
            trained(progress, clock, range(10 * number - 9, 10 * number + 1), number, seconds=2.0)
            progress.epoch(done(number, 10 * number, error=error))
    assert "error" not in notes[0]
    assert "error 41.50 %, " in notes[1]
    assert "error 41.50 % (epoch 2), " in notes[2]


@pytest.mark.parametrize("width", [80, 200])
def test_a_person_sees_three_lines_that_fit(width):
    progress, notes, clock, paper = shown(terminal=True, width=width)
    with progress:
        assert TITLE in drawn(progress)
        trained(progress, clock, range(1, 41), epoch=4)
        progress.epoch(done(4, 40, error=12.5))
        lines = drawn(progress, width).splitlines()
        assert len(lines) == 3
        assert lines[0].rstrip() == f"{TITLE}, epoch 4/10"
        assert re.fullmatch("━+[╸╺]? +update 40/100", lines[1])
        assert max(len(line) for line in lines) <= width
        assert lines[2].rstrip() == "loss 2, train accuracy 25.0 %, error 12.50 %, 100 images/s, 60 s left"
        progress.refresh()
    assert notes == []
    assert "train accuracy 25.0 %" in paper.getvalue()


def test_a_title_wider_than_the_terminal_and_one_with_brackets():
    progress, _, _, _ = shown(terminal=True)
    progress.title = "[bold]" + "long " * 40
    assert len(drawn(progress).splitlines()) == 2
    assert drawn(progress).startswith("[bold]long")


def test_without_a_terminal_nothing_is_drawn():
    progress, notes, clock, paper = shown()
    with progress:
        trained(progress, clock, range(1, 101), epoch=1)
    assert (paper.getvalue(), notes) == ("", [])


def test_it_looks_at_the_error_stream(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Progress(TITLE, 10, 1) as progress:
        assert not progress.live.is_started
    monkeypatch.setattr(sys, "stdout", plain := io.StringIO())
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with Progress(TITLE, 10, 1, note=print) as progress:
        assert progress.live.is_started
        print("to a file")
        print("a note", file=sys.stderr)
    assert plain.getvalue() == "to a file\n"
    assert "a note" in terminal.getvalue()
    assert sys.stderr is terminal


def test_the_display_ends_with_an_error():
    progress, _, _, _ = shown(terminal=True)
    with pytest.raises(ZeroDivisionError), progress:
        _ = 1 / 0
    assert not progress.live.is_started
    with shown(terminal=True)[0]:  # two at once would be refused
        pass


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0 s"),
        (99.4, "99 s"),
        (99.6, "2 min"),
        (3540, "59 min"),
        (3599, "1 h 0 min"),
        (3700, "1 h 2 min"),
        (86000, "1 d 0 h"),
        (200000, "2 d 8 h"),
    ],
)
def test_time_in_words(seconds, words):
    assert duration(seconds) == words
