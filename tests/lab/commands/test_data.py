"""``multimix data``: what a person sees."""

import hashlib
import io
import zipfile

import pytest

from multimix.lab.cli import main
from multimix.lab.data import DATASETS, DataSet
from multimix.lab.data.datasets import Source


def test_check_tells_what_is_there_and_what_is_not(tmp_path, capsys):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "train").write_bytes(b"no pickle")
    assert main(["data", "check", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cifar100: wrong"
    assert lines[1].startswith("  ")
    assert "cifar-100-python" in lines[1]
    assert lines[-1].startswith("not there: cifar10, cub200")
    assert main(["data", "check", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("cifar100: wrong\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["check", "nowhere"], "nowhere must be a folder, it does not exist"),
        (["fetch", "cifar101"], "no data set 'cifar101' (did you mean 'cifar10'?); there are cifar10, cifar100"),
        (["fetch", "imagenet"], "imagenet cannot be fetched, it needs a registration at"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_fetch_completes_what_is_in_the_folder(tmp_path, monkeypatch, capsys):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("tiny/a.bin", bytes(200))
    content = packed.getvalue()
    (tmp_path / "tiny.zip.part").write_bytes(content)  # all of it came before an interruption, so no server is needed
    source = Source("http://nowhere/tiny.zip", "tiny.zip", len(content), hashlib.sha256(content).hexdigest(), "zip", "tiny")
    monkeypatch.setitem(DATASETS, "tiny", DataSet("tiny", None, 1, (), (), (), {}, sources=[source]))
    assert main(["data", "fetch", "tiny", "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "tiny/a.bin").read_bytes() == bytes(200)
    assert capsys.readouterr().out == f"wrote {tmp_path / 'tiny'}\n"
