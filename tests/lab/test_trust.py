"""The folder of a run that somebody sent is safe to look at: nothing in it runs code."""

import json
import sys
from types import SimpleNamespace

import pytest
from torch import nn

from multimix.lab.cli import main
from multimix.lab.nets import check_network_path, network
from multimix.lab.recipes.runs import SETTINGS
from multimix.lab.recipes.serialise import rebuild
from multimix.lab.recipes.settings import Settings
from multimix.lab.training.checkpoint import Checkpoint, _write, checkpoints, load_run, read_checkpoint

ARMED = """
from pathlib import Path
from torch import nn

Path(__file__).with_name("ran").touch()


class Net(nn.Linear):
    def __init__(self, num_classes=10):
        super().__init__(64, num_classes)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose settings were changed: they name a network that leaves a trace when it is imported."""
    (tmp_path / "armed.py").write_text(ARMED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "armed", raising=False)
    out = tmp_path / "runs"
    assert main(["train", "digits", "--scale", "smoke", "--method", "none", "--out", str(out), "--running.device", "cpu"]) == 0
    (folder,) = (out / "digits" / "smoke").glob("none-*")
    return folder


def rename(folder, name, options=()):
    said = json.loads((folder / SETTINGS).read_text())
    said["settings"] |= {"network.name": name, "network.options": list(options)}
    said["digest"] = rebuild(Settings, said["settings"]).digest()  # as somebody who means harm would
    (folder / SETTINGS).write_text(json.dumps(said))
    path = checkpoints(folder)[-1]
    tensors, values = read_checkpoint(path)
    _write(path, Checkpoint(tensors, {**values, "settings": said["digest"]}))


def test_a_network_of_our_own_needs_no_trust(run):
    assert load_run(run).settings.network.name == "multimix.lab.nets.smallnet:SmallNet"


@pytest.mark.parametrize("measure", ["error", "transfer"])
def test_an_import_path_is_not_followed_unless_it_is_named(run, tmp_path, capsys, measure):
    rename(run, "armed:Net")
    assert main(["evaluate", str(run), "--on", measure, "--data", str(tmp_path)]) == 2
    assert "add --trust armed:Net if you know it (or set MULTIMIX_TRUST)" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("options", [["cache_dir=ran"], ["pretrained_cfg_overlay={'url': 'http://127.0.0.1:9/ran'}"]])
def test_timm_fetches_and_writes_nothing_that_only_a_folder_names(run, options):
    rename(run, "timm/test_resnet", ["pretrained=True", *options])
    with pytest.raises(
        ValueError, match=r"can make timm fetch, read or write files \(pretrained=True, .*: add --trust timm/test"
    ):
        load_run(run)


def test_weights_that_timm_would_fetch_are_not_asked_for_when_those_of_a_run_follow(run, monkeypatch):
    asked = []

    def create_model(name, **options):
        asked.append(options)
        return nn.Linear(2, 2)

    timm = SimpleNamespace(is_model=lambda name: True, create_model=create_model)
    monkeypatch.setitem(sys.modules, "timm", timm)
    rename(run, "timm/resnet18", ["pretrained=True", "stem_width=8"])
    with pytest.raises(ValueError, match="do not fit the network timm/resnet18"):
        load_run(run)
    (options,) = asked
    assert "pretrained" not in options
    assert options["stem_width"] == 8


@pytest.mark.parametrize(("options", "trust"), [(["stem_width=8"], []), (["cache_dir=ran"], ["timm/no_such_network"])])
def test_timm_with_numbers_or_with_trust_is_asked(run, options, trust):
    rename(run, "timm/no_such_network", options)
    with pytest.raises(ValueError, match="has no network 'no_such_network'|needs timm, which cannot be imported"):
        load_run(run, trust=trust)


def test_a_report_of_it_runs_nothing(run, tmp_path):
    rename(run, "os:system", ["command=touch ran"])
    assert main(["report", str(run.parents[2]), "--out", str(tmp_path / "report")]) == 0
    assert not (tmp_path / "ran").exists()


def test_what_is_trusted_by_name_is_loaded(run, tmp_path, monkeypatch):
    rename(run, "armed:Net")
    monkeypatch.setenv("MULTIMIX_TRUST", "other:Net")
    with pytest.raises(ValueError, match="add --trust"):
        load_run(run, trust=["armed:Other"])
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ValueError, match="do not fit the network armed:Net"):  # it is another network than was trained
        load_run(run, trust=["armed:Net"])
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "path", ["multimix.lab.nets.smallnet:nn", "multimix.lab.nets.resnet:partial", "multimix.lab.nets.vgg:vgg11"]
)
def test_only_classes_of_our_own_networks_are_free(path):
    with pytest.raises(ValueError, match="must be a network class"):
        network(path, 10)


@pytest.mark.parametrize(("field", "value"), [("data.subset_seed", 1), ("data.name", "cifar10"), ("optimizer.momentum", 0.8)])
def test_settings_that_were_changed_are_not_believed(run, field, value):
    said = json.loads((run / SETTINGS).read_text())
    said["settings"][field] = value
    (run / SETTINGS).write_text(json.dumps(said))
    with pytest.raises(ValueError, match="is damaged or was changed: its settings do not have the digest"):
        load_run(run)
    said["digest"] = rebuild(Settings, said["settings"]).digest()
    (run / SETTINGS).write_text(json.dumps(said))
    with pytest.raises(ValueError, match="was written with other settings than settings.json says"):
        load_run(run)


@pytest.mark.parametrize(("path", "options"), [("os:system", ["command=touch ran"]), ("armed:touch", []), ("armed:Other", [])])
def test_what_is_trusted_must_be_a_network_and_is_not_called_to_see(run, tmp_path, monkeypatch, path, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "armed.py").write_text(
        "from pathlib import Path\ndef touch(): Path('ran').touch()\nclass Other:\n    __init__ = touch\n"
    )
    rename(run, path, options)
    with pytest.raises(
        ValueError, match=f"^{path} must be a class derived from nn.Module, or a function annotated to return one"
    ):
        load_run(run, trust=[path])
    assert not (tmp_path / "ran").exists()


def test_a_function_that_says_it_returns_a_network_is_one(tmp_path, monkeypatch):
    (tmp_path / "makers.py").write_text("from torch import nn\ndef small() -> nn.Linear: raise ZeroDivisionError\n")
    monkeypatch.syspath_prepend(tmp_path)
    check_network_path("makers:small")


def test_a_network_that_would_take_all_memory_is_not_made(run):
    rename(
        run, "multimix.lab.nets.resnet:ResNeXt", ["in_channels=1", "width=1000000", "blocks=1", "cardinality=4", "base_width=4"]
    )
    with pytest.raises(
        ValueError, match=r"^the weights in .* do not fit the network .*ResNeXt: .* should be \[[\d, ]*1000000[\d, ]*\]"
    ):
        load_run(run)
