"""On an accelerator nothing stalls: counted for every method on a pretend one, with float64 and without."""

import pytest
import torch

import multimix as mm
from accelerator import told_by
from multimix.core.devices import downloaded, uploaded, widest_float
from multimix.testing import past, seeded

# Of these the host has to know something before it can plan: a map, or who is far from whom; AlignMixup asks if it is done.
ASKING = {
    "puzzlemix",
    "comixup",
    "saliencymix",
    "guidedmixup",
    "attentivemix",
    "sagemix",
    "alignmixup",
}
UPLOADS = {
    "none": 0,
    "samix": 2,
}  # of a training step, at most; SAMix draws twice, for the batch and for its block
SCRIPT = "count_crossings.py"


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    return told_by(SCRIPT, "count", tmp_path_factory=tmp_path_factory)


def stalls(told, uploads):
    """Every case in which the host waits, or copies more than once."""
    return {
        case: of
        for case, of in told.items()
        if "error" in of or of["downloads"] > (of["name"] in ASKING) or of["blocking"] or of["uploads"] > uploads(of["name"])
    }


@pytest.mark.slow
def test_a_plan_downloads_at_most_once_and_uploads_once(counts):
    assert stalls(counts, lambda name: min(1, UPLOADS.get(name, 1))) == {}
    assert {of["name"] for of in counts.values()} == {known.name for known in mm.registry.entries()}


@pytest.mark.slow
def test_masks_of_all_samples_are_not_uploaded(counts):
    """In float32 they would be a third of the mixed batch of 3 × 6 samples; ranks, sides and cells are less."""
    blocks = ("puzzlemix", "comixup")  # nearly as many as there are places, in images this small
    sizes = {case: of["uploaded"] for case, of in counts.items() if of["name"] not in blocks}
    assert {case: size for case, size in sizes.items() if size > 0.7 * 3 * 6 * 24 * 20 * 4} == {}


@pytest.mark.slow
def test_a_training_step_with_a_model(tmp_path_factory):
    told = told_by(SCRIPT, "train", tmp_path_factory=tmp_path_factory)
    assert stalls(told, lambda name: UPLOADS.get(name, 1)) == {}
    assert len(told) > 20


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kind"), [("agree", "torch.float64"), ("narrow", "torch.float32")])
def test_the_device_gets_what_the_cpu_gets(task, kind, tmp_path_factory):
    """Also without float64, as MPS is: λ is float32 there, and nothing asks for more."""
    told = told_by(SCRIPT, task, tmp_path_factory=tmp_path_factory)
    assert {case: of for case, of in told.items() if "error" in of or max(of["apart"]) > 2e-6} == {}
    assert {of["types"][0] for of in told.values()} == {kind}


VALUES = [
    torch.tensor([True, False, True]),
    torch.rand(2, 3, dtype=torch.float64, generator=seeded(0)),
    torch.arange(5, dtype=torch.int32),
    torch.zeros(0, 4),
    torch.rand((), generator=seeded(1)),
    torch.arange(6).view(2, 3).t(),
    torch.rand(1, 3, generator=seeded(2)).expand(4, 3),
]


def test_packing_changes_nothing():
    from multimix.core.devices import _packed, _unpacked

    packed = _packed(VALUES)
    assert packed.dtype == torch.uint8
    for value, back in zip(VALUES, _unpacked(packed, VALUES), strict=True):
        assert (back.dtype, back.shape) == (value.dtype, value.shape)
        assert torch.equal(back, value)


def test_uploads_keep_shapes_and_types():
    for device in map(torch.device, ("cpu", "meta")):
        for value, there in zip(VALUES, uploaded(device, *VALUES), strict=True):
            assert (there.device, there.dtype, there.shape) == (device, value.dtype, value.shape)
    assert all(back is not None and torch.equal(back, value) for back, value in zip(downloaded(*VALUES), VALUES, strict=True))
    assert widest_float(torch.device("cpu")) == torch.float64


def test_what_only_python_reads_stays_on_the_host():
    x = torch.rand(4, 3, 8, 8, generator=seeded(0))
    method = mm.create("recursivemix", k=3, keep="middle")
    plan = method.plan(x, generator=seeded(0), **past(method, x)).to("meta")
    assert (plan.kept.device.type, plan.low.device.type, plan.history_x.device.type) == (
        "cpu",
        "meta",
        "meta",
    )
    assert plan.history_steps == [1]
