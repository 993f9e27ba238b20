"""What a run is: phases, augmentation steps, the digest, the fields by name."""

import json
from dataclasses import dataclass, fields, replace

import pytest
import torch

import multimix as mm
from multimix.lab.data import CenterCrop, Flip, Normalise, PaddedCrop, RandomResizedCrop, Resize, Rotation, dataset
from multimix.lab.recipes.serialise import describe, describe_changes
from multimix.lab.recipes.settings import Augmentation, Data, Milestones, Network, Phase, Running, Settings
from multimix.lab.sketch_pair import SketchPair
from multimix.methods.style.small_pair import NewPair
from trial import settings


def test_the_digest_sees_everything_but_how_the_machine_does_it():
    start = settings()
    same = [
        replace(start, running=Running(workers=3, checkpoint_minutes=1.0, device="cpu")),
        replace(start, method=replace(start.method, threads=2)),
        replace(start, schedule=Milestones(0.1, (2,), warmup=0.5)),
    ]
    others = [
        replace(start, epochs=4),
        replace(start, method=mm.PuzzleMix(k=4, mean=0.3054, std=0.3753)),
        replace(start, method=mm.InputMixup(k=3)),
        replace(start, method=mm.CutMix(k=3)),
        replace(start, data=replace(start.data, subset_seed=1)),
        replace(start, network=Network("trial:DropNet", ("p=0.1",))),
        replace(start, schedule=replace(start.schedule, rate=0.2)),
        replace(start, augment=replace(start.augment, padding=2)),
        replace(start, optimizer=replace(start.optimizer, nesterov=False)),
        replace(start, phases=(Phase(0, 40, 8, 0.5),)),
    ]
    assert {each.digest() for each in same} == {start.digest()}
    assert len({start.digest(), *(each.digest() for each in others)}) == len(others) + 1


def test_the_digest_covers_only_fields_that_differ_from_their_defaults():
    changes = describe_changes(settings(method=mm.CutMix(k=3), epochs=4))
    assert {name: value for name, value in changes.items() if name.startswith("method")} == {"method": "cutmix", "method.k": 3}
    assert changes["epochs"] == 4
    assert not {"repeats", "phases", "augment.size", "optimizer.momentum"} & set(changes)

    @dataclass(frozen=True)
    class Wider(Settings):
        newer_option: int | None = None

    start = settings()
    wider = Wider(**{name: getattr(start, name) for name in (option.name for option in fields(start))})
    assert wider.digest() == start.digest()
    assert replace(wider, newer_option=1).digest() != start.digest()


@pytest.mark.parametrize("pair", [SketchPair(), NewPair()])
def test_the_digest_tells_classes_with_default_options_apart(pair):
    changes = describe_changes(settings(method=mm.StyleMix(pair=pair, side=None)))
    assert changes["method.pair"] == type(pair).__name__


def test_described_has_every_field_by_its_dotted_name_in_json():
    found = describe(settings(phases=(Phase(0, 40, 8, 0.5), Phase(2, 20, 8, 0.7))))
    assert found["method"] == "puzzlemix"
    assert found["method.k"] == 3
    assert found["schedule"] == "Milestones"
    assert found["schedule.at"] == [2.0]
    assert found["phases.1.batch"] == 20
    assert found["data.per_class"] == 20
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_phases_replace_sizes_and_the_clean_weight():
    phases = (Phase(0, 8, 6, 0.5, short_side=9, clean_weight=0.2), Phase(3, 4, 8, 0.7, clean_weight=0.0))
    start = settings(phases=phases, method=mm.PuzzleMix(std=1.0, clean_weight=1.0))
    for epoch, batch, size, smallest, short_side, weight in [
        (0, 8, 6, 0.5, 9, 0.2),
        (2, 8, 6, 0.5, 9, 0.2),
        (3, 4, 8, 0.7, None, 0.0),
    ]:
        now = start.in_epoch(epoch)
        assert (now.batch, now.augment.size, now.augment.smallest_crop, now.augment.short_side) == (
            batch,
            size,
            smallest,
            short_side,
        )
        assert now.method.clean_weight == weight
    assert replace(start, method=mm.PuzzleMix(std=1.0)).in_epoch(0).method.clean_weight == 0, "none is not turned on"
    assert settings().in_epoch(7) == settings()
    for wrong in ((Phase(1, 8, 6, 0.5),), (Phase(0, 8, 6, 0.5), Phase(0, 8, 6, 0.5)), (*phases[::-1],)):
        with pytest.raises(ValueError, match="phases must start at epoch 0 and ascend"):
            settings(phases=wrong)


def test_augmentation_steps_come_in_the_order_of_the_protocol():
    entry = dataset("cifar100")
    normalise = Normalise(entry.mean, entry.std)
    basic = Augmentation(flip=True, padding=2)
    assert basic.training(entry).steps == (PaddedCrop((32, 32), 2), Flip(), normalise)
    assert basic.evaluation(entry).steps == (normalise,)
    turned = replace(basic, rotation=15.0)
    assert turned.training(entry).steps == (Rotation(15.0), PaddedCrop((32, 32), 2), Flip(), normalise)
    crops = Augmentation(flip=True, smallest_crop=0.08, size=128, evaluate_resize=256, evaluate_crop=224)
    assert crops.training(entry).steps == (RandomResizedCrop(128, (0.08, 1.0)), Flip(), normalise)
    assert crops.evaluation(entry).steps == (Resize(256), CenterCrop(224), normalise)
    with pytest.raises(ValueError, match="smallest_crop needs augment.size"):
        Augmentation(smallest_crop=0.1)


def test_network_options_are_words():
    options = ("stem_stride=2", "name=abc", "p=0.5", "flag=True", "sizes=(1, 2)")
    assert Network("x", options).given() == {"stem_stride": 2, "name": "abc", "p": 0.5, "flag": True, "sizes": (1, 2)}
    for wrong in ("stem_stride", "2=3", "=4"):
        with pytest.raises(ValueError, match="words name=value"):
            Network("x", (wrong,)).given()


@pytest.mark.parametrize("name", ["epochs", "batch", "repeats", "accumulate", "k_chunk", "evaluate_every", "evaluate_batch"])
def test_counts_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        settings(**{name: 0})
    with pytest.raises(ValueError, match="running.workers must be at least 0, got -1"):
        Running(workers=-1)
    with pytest.raises(ValueError, match="smoothing"):
        settings(smoothing=1.5)


def test_an_unknown_data_set_is_named():
    with pytest.raises(ValueError, match="no data set 'cifar11'"):
        Data("cifar11").entry()
    assert torch.tensor(Data("digits").entry().mean).shape == (1,)


@pytest.mark.parametrize(
    ("network", "name"),
    [
        (Network("preact_resnet18_small", ("in_channels=3",)), "in_channels"),
        (Network("preact_resnet18_small", ("num_classes=3",)), "num_classes"),
        (Network("trial:DropNet", ("num_classes=3",)), "num_classes"),
        (Network("trial:DropNet", ("name=3",)), "name"),
    ],
)
def test_options_of_a_network_that_are_known_already(network, name):
    with pytest.raises(ValueError, match=f"^network.options must not have {name}, which is known already$"):
        network.built(10, 3)


def test_options_that_nobody_could_mean():
    assert Network("x", ("width=" + "(" * 100_000,)).given() == {"width": "(" * 100_000}
