"""What commands say on the way: a bar for people, lines at a sensible pace for files."""

import multimix.lab.terminal as terminal
from multimix.lab.storage import write_files


def test_lines_come_at_a_pace_with_an_estimate(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    for item in terminal.bar("Mixing")(list(range(10))):
        assert item == round(clock[0] / 4)
        clock[0] += 4.0
    assert capsys.readouterr().err.splitlines() == ["Mixing: 4 of 10, about 24 s left", "Mixing: 8 of 10, about 8 s left"]


def test_short_work_is_done_in_silence(capsys):
    assert list(terminal.bar("Mixing")([1, 2, 3])) == [1, 2, 3]
    assert capsys.readouterr().err == ""


def test_a_page_that_changes_is_kept_and_said(tmp_path, capsys):
    write_files(tmp_path, {"a.html": b"one", "a.csv": b"1"})
    write_files(tmp_path, {"a.html": b"one", "a.csv": b"2"})
    assert capsys.readouterr().err == ""
    write_files(tmp_path, {"a.html": b"two"})
    assert capsys.readouterr().err == f"a.html was there, with other content: it is kept as {tmp_path / 'a-before.html'}\n"
    assert (tmp_path / "a-before.html").read_bytes() == b"one"
    assert (tmp_path / "a.html").read_bytes() == b"two"
