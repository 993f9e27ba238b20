"""The lab's options of methods: for built-in ones, for plug-ins, and for methods without an entry."""

import json

import pytest

import multimix as mm
from made_up import Demanding, add_methods
from multimix.lab import method_options
from multimix.lab.method_options import LabOptions, lab_options, register_options
from multimix.lab.studies.look.cases import choose_methods, remarks


@pytest.fixture
def options_restored(monkeypatch):
    monkeypatch.setattr(method_options, "_by_name", dict(method_options._by_name))


def test_all_built_in_options_belong_to_a_method():
    assert set(method_options._by_name) <= {known.name for known in mm.registry.entries()}


@pytest.mark.parametrize("known", mm.registry.entries(), ids=lambda known: known.name)
def test_options_fit_their_method(known):
    in_lab = lab_options(known.name)
    for options in (in_lab.recipe, in_lab.small, in_lab.look(64)):
        assert set(options) <= set(known.options)


@pytest.mark.parametrize("size", ["recipe", "small"])
@pytest.mark.parametrize("known", mm.registry.entries(), ids=lambda known: known.name)
def test_methods_of_recipes_survive_as_plain_values(known, size):
    options = getattr(lab_options(known.name), size)
    if not set(known.required) <= set(options):
        pytest.skip(f"a recipe sets {', '.join(known.required)}")
    method = known.method(**options)
    assert mm.create(**json.loads(json.dumps(mm.to_dict(method)))) == method


def test_a_method_without_an_entry_has_the_defaults():
    assert lab_options("mymix") == LabOptions()
    assert lab_options("mymix").look(32) == {}


def test_a_plug_in_registers_its_options(monkeypatch, options_restored):
    add_methods(monkeypatch, Demanding)
    register_options(Demanding.name, look=lambda side: {"strength": side}, caption="strong", remark="Strong here.")
    (method,) = choose_methods([Demanding.name], 32, print)
    assert method.strength == 32
    assert remarks(method).caption == "strong"


def test_unknown_options_are_rejected(options_restored):
    with pytest.raises(TypeError, match="lok"):
        register_options("mymix", lok=lambda side: {})
    assert lab_options("mymix") == LabOptions()
