import multiprocessing
import os

import pytest

from multimix.lab.storage import append_row, read_rows, write_atomically


def test_rows_come_back_in_order_with_environment_and_time(tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    for seed in range(3):
        append_row(path, {"seed": seed, "error": 0.1 + seed, "name": "λ"})
    rows = read_rows(path)
    assert [(row["seed"], row["error"], row["name"]) for row in rows] == [(0, 0.1, "λ"), (1, 1.1, "λ"), (2, 2.1, "λ")]
    assert all("torch" in row["environment"] and row["time"].startswith("20") for row in rows)
    assert read_rows(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize("spoil", [b'{"seed": 7', b"[]\n", b'{"seed": 9, "sha256": "00"}\n', b"\xff\xfe\n", b"null\n"])
def test_a_damaged_line_is_named_and_costs_no_other(tmp_path, spoil):
    path = tmp_path / "rows.jsonl"
    append_row(path, {"seed": 0})
    with path.open("ab") as file:
        file.write(spoil)
    append_row(path, {"seed": 1})
    notes = []
    assert [row["seed"] for row in read_rows(path, notes.append)] == [0, 1]
    assert notes == [f"line 2 of {path} is damaged and left out"]


def test_a_changed_number_is_found(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_row(path, {"error": 12.5})
    path.write_text(path.read_text().replace("12.5", "11.5"))
    assert read_rows(path, lambda sentence: None) == []


def _write(path, writer):
    for i in range(50):
        append_row(path, {"writer": writer, "i": i, "filling": "x" * 3000})


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_two_writers_at_once(tmp_path):
    path = tmp_path / "rows.jsonl"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write, args=(path, writer)) for writer in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    rows = read_rows(path)
    assert sorted((row["writer"], row["i"]) for row in rows) == [(writer, i) for writer in range(3) for i in range(50)]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="out must be a folder, .*file' is a file"):
        append_row(tmp_path / "file" / "rows.jsonl", {})
    (tmp_path / "rows.jsonl").mkdir()
    with pytest.raises(OSError, match="cannot write .*rows.jsonl': Is a directory"):
        append_row(tmp_path / "rows.jsonl", {})


@pytest.mark.parametrize("target", ["notes.txt", "nowhere.txt"])
def test_rows_are_not_written_through_a_link(tmp_path, target):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "rows.jsonl").symlink_to(tmp_path / target)
    with pytest.raises(OSError, match=r"rows\.jsonl': it is a symbolic link"):
        append_row(tmp_path / "rows.jsonl", {"error": 1.0})
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "nowhere.txt").exists()


def test_a_file_is_not_written_through_a_link(tmp_path):
    """Neither the file itself, which is replaced, nor the temporary one beside it, whose name can be guessed."""
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "page.html").symlink_to(tmp_path / "notes.txt")
    write_atomically(tmp_path / "page.html", b"new")
    assert (tmp_path / "page.html").read_text() == "new"
    (tmp_path / f".page.html.{os.getpid()}").symlink_to(tmp_path / "notes.txt")
    with pytest.raises(OSError, match="it is a symbolic link"):
        write_atomically(tmp_path / "page.html", b"newer")
    assert (tmp_path / "notes.txt").read_text() == "mine"
