"""``multimix data``: what a person sees."""

import numpy as np
import pytest

from multimix.lab.cli import main
from multimix.lab.commands.data_runner import check, fetch
from multimix.lab.data.fetch import Source


def test_check_tells_what_is_there_and_what_is_not(tmp_path, capsys):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "train").write_bytes(b"no pickle")
    assert main(["data", "check", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cifar100: wrong"
    assert "cifar-100-python" in lines[1]
    assert lines[-1].startswith("not there: cifar10, tiny_imagenet")
    assert check(tmp_path / "cifar-100-python")[0] == "cifar100: wrong"


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


def test_fetch_hands_on_progress_and_options(tmp_path):
    content = np.random.default_rng(0).bytes(1000)

    class Response:
        status, length = 200, 1000

        def __init__(self):
            self.left = content

        def read1(self, size=-1):
            part, self.left = self.left[:size], self.left[size:]
            return part

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    sources = {"tiny": (Source("http://nowhere/a.bin", "a.bin", 1000, None, "none", "tiny"),)}
    path = fetch("tiny", tmp_path, note=lambda sentence: None, sources=sources, opener=lambda request: Response())
    assert (path / "a.bin").read_bytes() == content
