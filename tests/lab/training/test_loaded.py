"""The network of a run comes back with its weights, last or best, or one sentence says why not."""

import json

import pytest
import torch

from multimix.lab.recipes.runs import planned
from multimix.lab.recipes.settings import Network
from multimix.lab.storage import read_rows
from multimix.lab.training.checkpoint import load_run, weights_digest
from multimix.lab.training.run import train
from trial import RECIPE, splits


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    (run,) = planned(RECIPE, scale="smoke", method="mixup", k=2, changes={"network.options": "width=6,p=0.2"})
    train([run], data=".", out=out, note=lambda sentence: None)
    (row,) = read_rows(out / "results.jsonl")
    return out / run.folder, row


def error(found):
    network, data, augment = found.network, found.settings.data, found.settings.augment
    split = splits()[data.report].subset(data.report_per_class, data.subset_seed)
    pixels, labels = split.batch(torch.arange(len(split)))
    steps = augment.evaluation(data.entry())
    x = steps.apply(pixels, steps.draw(len(pixels), torch.Generator()))
    with torch.no_grad():
        return 100 * (network(x).argmax(1) != labels).double().mean().item()


def test_the_last_and_the_best_weights(finished):
    folder, row = finished
    last, best = load_run(folder), load_run(folder, "best")
    assert weights_digest(last.network) == row["weights"]
    assert error(last) == pytest.approx(row["outcome"]["last"])
    assert error(best) == pytest.approx(row["outcome"]["best"])
    assert not last.network.training
    assert last.network.stage1[0].out_channels == 6, "the options of the network, too"
    assert last.classes == tuple(map(str, range(10)))
    assert {name: last.about[name] for name in ("recipe", "arm", "k", "seed")} == {
        "recipe": "trial",
        "arm": "mixup",
        "k": 2,
        "seed": 0,
    }
    assert Network("x", ("a=1",)) != Network("x")


def test_what_is_not_there_is_said(finished, tmp_path):
    folder, _ = finished
    with pytest.raises(ValueError, match="is not the folder of a run: it has no settings.json"):
        load_run(tmp_path)
    (tmp_path / "settings.json").write_text((folder / "settings.json").read_text())
    for which in ("last", "best"):
        with pytest.raises(ValueError, match=f"has no {which} checkpoint"):
            load_run(tmp_path, which)
    (tmp_path / "settings.json").write_text(json.dumps({"settings": {}}))
    with pytest.raises(ValueError, match="settings.json is damaged"):
        load_run(tmp_path)
