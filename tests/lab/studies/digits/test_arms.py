from dataclasses import dataclass

import pytest

import multimix
from made_up import Demanding, Dummy, Needy, add_methods
from multimix import METHODS, NoMix
from multimix.lab.studies.digits.arms import arms


@dataclass(frozen=True, kw_only=True)
class Single(NoMix.__bases__[0]):
    """A method without k."""

    def draw(self, x, *, generator):
        raise AssertionError


def quiet(sentence):
    raise AssertionError(f"nothing was to be said, but {sentence!r} was")


def test_every_registered_method_is_there_at_every_k_and_the_baselines_once():
    found = arms((), (1, 5), 0.1, quiet)
    expected = [("none", None), ("smoothing", None)]
    expected += [(kind.name, k) for kind in METHODS if kind is not NoMix and kind.layout != "points" for k in (1, 5)]
    assert [(arm.name, arm.k) for arm in found] == expected
    assert all(arm.method.name == arm.name and arm.method.k == arm.k for arm in found[2:])
    assert [arm.smoothing for arm in found] == [0, 0.1] + [0] * (len(found) - 2)
    assert all(getattr(arm.method, "p", 1.0) == 1.0 for arm in found)
    assert len({arm.label for arm in found}) == len({arm.unit(3) for arm in found}) == len(found)


def test_a_new_method_appears_by_itself(monkeypatch):
    add_methods(monkeypatch, Dummy, Single)
    found = arms((), (1, 3), 0.1, quiet)
    assert [(arm.label, type(arm.method)) for arm in found[-3:]] == [
        ("dummy, K = 1", Dummy),
        ("dummy, K = 3", Dummy),
        ("single", Single),
    ]
    assert [arm.label for arm in arms(("dummy_alias",), (3,), 0.1, quiet)] == ["none", "dummy, K = 3"]


def test_what_cannot_be_trained_is_left_out_with_a_note_or_refused_if_named(monkeypatch):
    add_methods(monkeypatch, Needy, Demanding)
    notes = []
    names = {arm.name for arm in arms((), (1,), 0.1, notes.append)}
    assert names.isdisjoint({"needy", "demanding"})
    assert notes == [
        "needy is left out: it needs history, which this study does not compute",
        "demanding is left out: it has no default for strength",
    ]
    with pytest.raises(ValueError, match="needy cannot be trained on the digits: it needs history"):
        arms(("needy",), (1,), 0.1, quiet)


def test_names_choose_and_no_mixing_stays():
    assert [arm.label for arm in arms(("fmix", "input"), (2,), 0.1, quiet)] == ["none", "mixup, K = 2", "fmix, K = 2"]
    assert [arm.label for arm in arms(("smoothing",), (2,), 0.1, quiet)] == ["none", "smoothing"]
    assert [arm.label for arm in arms(("none",), (2,), 0.1, quiet)] == ["none"]


def test_an_unknown_name_gets_the_librarys_sentence():
    with pytest.raises(ValueError, match="no method") as ours:
        arms(("cutmx",), (1,), 0.1, quiet)
    with pytest.raises(ValueError, match="no method") as theirs:
        multimix.create("cutmx")
    assert str(ours.value) == str(theirs.value)
    assert "did you mean 'cutmix'?" in str(ours.value)
