"""What every registered method for images must pass: the checks of multimix.testing, and K = 1 as an oracle has it.

Options and exceptions stand in the method's own file, under ``@register``; here it needs a line in BASE, its single-interpolation
form written independently. Methods for points have the same asked of clouds in tests of their own.
"""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import box_family_oracles
import comixup_oracle
import multimix as mm
import oracles
import puzzle_oracle
import recursive_oracle
import saliency_family_oracles as family
import samix_oracle
import style_oracle
from made_up import add_methods
from multimix.core.plan import SharePlan
from multimix.methods.registry import entry
from multimix.methods.samix.block import FixedBlock
from multimix.testing import CHECKS, SIZES, Case, cases, check_method, images, past, saliency
from oracles import seeded

OF_IMAGES = [known for known in mm.registry.entries() if known.mixes("images")]

BASE = {
    "none": lambda x, partner, lam, generator, options: x,
    "cutout": lambda x, partner, lam, generator, options: oracles.cutout(x, generator, **options),
    "mixup": lambda x, partner, lam, generator, options: oracles.mixup(x, partner, lam),
    "manifoldmix": lambda x, partner, lam, generator, options: oracles.mixup(x, partner, lam),
    "cutmix": lambda x, partner, lam, generator, options: oracles.cutmix(x, partner, lam, generator, **options),
    "fmix": lambda x, partner, lam, generator, options: oracles.fmix(x, partner, lam, generator, **options),
    "puzzlemix": lambda x, partner, lam, generator, options: puzzle_oracle.puzzle_mix(
        x, partner, lam, saliency(x), generator, **options
    ),
    "comixup": lambda x, partner, lam, generator, options: comixup_oracle.base(x, saliency(x), generator, **options),
    "recursivemix": lambda x, partner, lam, generator, options: recursive_oracle.recursive_mix(
        x, x.flip(0), generator, **options
    ),
    "stylemix": lambda x, partner, lam, generator, options: style_oracle.base_style_mix(x, partner, lam, generator, options),
    "stylecutmix": lambda x, partner, lam, generator, options: style_oracle.base_style_cutmix(
        x, partner, lam, generator, options
    ),
    "samix": lambda x, partner, lam, generator, options: samix_oracle.fixed_samix(x, partner, lam, generator, **options),
    "saliencymix": lambda x, partner, lam, generator, options: box_family_oracles.saliency_mix(
        x, partner, lam, maps=saliency(x) if options.get("saliency_from") == "gradient" else None, **options
    ),
    "resizemix": lambda x, partner, lam, generator, options: box_family_oracles.resize_mix(x, partner, lam, generator, **options),
    "gridmix": lambda x, partner, lam, generator, options: box_family_oracles.grid_mix(x, partner, lam, generator, **options),
    "smoothmix": lambda x, partner, lam, generator, options: box_family_oracles.smooth_mix(x, partner, lam, generator, **options),
    "alignmixup": lambda x, partner, lam, generator, options: family.align_mixup(x, partner, lam, generator, **options),
    "sage": lambda x, partner, lam, generator, options: family.sage(x, partner, lam, saliency(x), generator, **options),
    "guidedmixup": lambda x, partner, lam, generator, options: family.guided_mixup(x, partner, lam, saliency(x), **options),
    "attentivemix": lambda x, partner, lam, generator, options: family.attentive_mix(
        x, partner, lam, saliency(x), generator, **options
    ),
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("known", OF_IMAGES, ids=lambda known: known.name)
def test_every_promise_is_kept(known, check):
    for case in cases(known):
        CHECKS[check](case)


@pytest.mark.parametrize("check", sorted(CHECKS.keys() - {"signals and volumes", "channels last is kept"}))
def test_the_reference_spectrum_keeps_the_promises_for_images(check):
    CHECKS[check](Case(entry("fmix"), {"spectrum": "reference", "per_pair": False}))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cutmix", {"box": "shift"}),
        ("cutmix", {"box": "shift", "grid": "integer"}),
        ("saliencymix", {"box": "shift", "grid": "continuous"}),
        ("gridmix", {"crop": 1}),
        ("resizemix", {}),
        ("resizemix", {"box": "shift", "resize": "bilinear"}),
    ],
)
@pytest.mark.parametrize("per_pair", [False, True])
def test_with_these_options_the_path_ends_at_the_partner(name, options, per_pair):
    known = replace(entry(name), exceptions={})
    CHECKS["end points"](Case(known, {**options, "per_pair": per_pair}))


@dataclass(frozen=True, kw_only=True)
class Careless(mm.InputMixup):
    """Mixup whose label says nothing about the partner."""

    def build(self, x, partner, lam, *, generator):
        plan = super().build(x, partner, lam, generator=generator)
        return Unlabelled(**vars(plan))


class Unlabelled(SharePlan):
    """A mixture that keeps the sample's label."""

    def _mix_target(self, target):
        return target.repeat(self.k, 1)


def test_a_broken_promise_is_named(monkeypatch):
    add_methods(monkeypatch, Careless)
    with pytest.raises(AssertionError, match="careless.*target is the pixel share"):
        check_method("careless")
    with pytest.raises(ValueError, match="sagemix mixes points"):
        check_method("sagemix")


@pytest.mark.parametrize("known", OF_IMAGES, ids=lambda known: known.name)
def test_k_1_is_the_base_method(known):
    assert known.name in BASE, "write the single-interpolation form of the method, independently, in oracles.py"
    for case in cases(known):
        if "softness" in case.options:
            continue  # soft edges have tests of their own in test_laws.py
        for (batch, size), (seed, lam) in zip(SIZES * 2, enumerate([0.03, 0.3, 0.5, 0.81]), strict=True):
            if known.name == "fmix" and case.options["per_pair"] and batch > 1:
                continue  # one field per pair: the base method has one for all
            x, partner = images(batch, size), torch.randperm(batch, generator=seeded(100 + seed))
            given = {"partner": partner, "lam": [lam]} if case.mixes_pairs else {}
            unknown = ("layers", "per_pair") if known.name in ("mixup", "manifoldmix", "fmix") else ("layers",)
            options = {name: value for name, value in case.options.items() if name not in unknown}
            expected = BASE[known.name](x, partner.tolist(), lam, seeded(seed), options)
            torch.testing.assert_close(case.plan(x, k=1, seed=seed, **given).mix(x), expected, atol=1e-6, rtol=1e-6)


class Scored(nn.Module):
    """A linear head on what a layer puts out, for methods that look inside."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Identity(), nn.Linear(2, 3)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[1.0, -2.0], [0.5, 3.0], [-1.0, 1.0]]))
            self.head.bias.zero_()

    def forward(self, x):
        return self.head(self.body(x).flatten(2).mean(2))


OWN_LOSS = {
    "puzzlemix": [{"std": 0.1, "clean_weight": 1.0, "clean_scale": scale} for scale in ("plain", "per_class", "loss")],
    "comixup": [{"clean_weight": 1.0}],
    "sage": [{"update_ratio": 0.5}],
    "samix": [{"block": FixedBlock(), "train_block": False}],
    "recursivemix": [{"features": "body", "head": "head", "omega_scale": scale} for scale in ("plain", "per_class")],
}


@pytest.mark.parametrize(
    ("known", "options"),
    [(known, options) for known in OF_IMAGES for options in [known.examples[0], *OWN_LOSS.get(known.name, [])]],
)
def test_a_loss_is_known_by_what_it_returns_not_by_which_function_it_is(known, options):
    """The same function under another name gives the same number: nothing may hang on its identity."""
    x, y, made = images(4, (8, 8)).clamp(0, 1), torch.tensor([0, 1, 2, 0]), known.method(k=2, **options)
    before = {"history_logits": torch.zeros(4, 3), **past(made, x, 3, y)} if made.traits.history else {}
    for loss in (mm.losses.softmax_bce, mm.losses.soft_cross_entropy):
        bare, wrapped = (
            mm.mixed_forward(Scored(), made, x, y, generator=seeded(0), **before).loss(criterion)
            for criterion in (loss, lambda logits, target, loss=loss: loss(logits, target))
        )
        assert torch.equal(bare, wrapped)
