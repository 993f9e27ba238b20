"""A method of one file is known everywhere; what follows from the registry is up to date."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import multimix as mm
from made_up import Dummy, add_methods
from multimix.methods import registry
from multimix.methods.samix.block import FixedBlock

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), flags=re.DOTALL)


def run(folder, *command):
    """What Python prints with ``folder`` as one more place for packages."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); sys.argv = {['multimix', *command]!r}; "
    code += "import multimix.lab.cli as cli; sys.exit(cli.main())" if len(command) > 1 else command[0]
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)


@pytest.fixture
def plugin(tmp_path):
    """A folder with the method of docs/extending.md, as an installed package of one file."""
    (tmp_path / "stripemix.py").write_text(BLOCKS[0])
    about = tmp_path / "stripemix-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stripemix\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[multimix.methods]\nstripemix = stripemix\n")
    return tmp_path


def test_a_method_of_one_file_is_created_checked_listed_and_shown(plugin):
    used = run(plugin, BLOCKS[1] + "\nprint(method, mm.registry.entries()[-1].method.__name__, mm.create('stripes').name)")
    assert used.stderr == ""
    assert used.stdout.split() == ["StripeMix(k=5,", *used.stdout.split()[1:-2], "StripeMix", "stripemix"]
    listed = run(plugin, "list", "methods")
    words = " ".join(listed.stdout.split())  # lines are cut to the width of the terminal
    assert re.search(r"stripemix StripeMix: .*\(also stripes\)", words), listed.stderr
    shown = run(plugin, "look", "--methods", "stripemix", "mixup", "--size", "32", "--k", "2")
    assert shown.returncode == 0, shown.stderr
    assert "<h2>stripemix</h2>" in (plugin / "multimix-look" / "look.html").read_text()


def test_plugins_are_loaded_only_when_asked_for(plugin):
    code = "import sys, multimix as mm; mm.create('cutmix'); print('stripemix' in sys.modules, len(mm.registry.entries()))"
    assert run(plugin, code).stdout.split() == ["False", str(len(mm.registry.entries()) + 1)]


def test_a_broken_plugin_is_one_warning_and_nothing_else(plugin):
    (plugin / "stripemix.py").write_text("raise OSError('no such\\ndisk')")
    tried = run(plugin, "import multimix as mm; print(len(mm.registry.entries()), len(mm.registry.entries()))")
    assert tried.stdout.split() == [str(len(mm.registry.entries()))] * 2
    assert tried.stderr.count("UserWarning") == tried.stderr.count("'stripemix' (stripemix)") == 1
    assert "OSError: no such disk" in tried.stderr
    assert "Traceback" not in tried.stderr
    asked = run(plugin, "import multimix as mm; mm.create('stripemix')")
    assert "ValueError: no method 'stripemix'" in asked.stderr


def test_what_is_made_from_the_registry_is_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "tools" / "generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}: run make docs-tables"


def test_a_new_file_gets_its_line_at_the_end(tmp_path):
    copy = tmp_path / "copy"
    for name in ("src", "tools"):
        subprocess.run(["cp", "-r", ROOT / name, copy.parent / name], check=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/choose.md").write_text((ROOT / "docs/choose.md").read_text())
    (tmp_path / "src/multimix/methods/a_stripe_mix.py").write_text(
        BLOCKS[0].replace(
            "from multimix import PairMethod, register", "from .path import PairMethod\nfrom .registry import register"
        )
    )
    subprocess.run(
        [sys.executable, "tools/generate.py"], cwd=tmp_path, check=True, env={"PATH": "", "PYTHONPATH": str(tmp_path / "src")}
    )
    lines = (tmp_path / "src/multimix/methods/__init__.py").read_text().splitlines()
    assert lines.index("from .a_stripe_mix import StripeMix") == lines.index("# isort: on") - 1
    assert '    "StripeMix",' in lines
    page = (tmp_path / "docs/choose.md").read_text()
    assert "| [`stripemix`](methods/stripemix.md), `stripes` | `StripeMix` | pair, side |" in page
    assert "-   **[StripeMix](methods/stripemix.md)** `stripemix`\n\n    StripeMix: K growing strips" in page


def test_names_are_taken_once(monkeypatch):
    add_methods(monkeypatch, Dummy)
    with pytest.raises(ValueError, match="'input' of Dummy is taken by InputMixup"):
        registry.register("other", aliases=("input",))(Dummy)
    assert mm.create("dummy_alias", k=3).k == 3
    assert mm.registry.entries()[-1].method is Dummy


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"layout": "sounds"}, "layout"),
        ({"exceptions": {"always fast": "no"}}, "promise"),
    ],
)
def test_facts_that_cannot_be_are_one_sentence(facts, sentence):
    with pytest.raises(ValueError, match=sentence):
        registry.register("other", **facts)(Dummy)


def test_only_dataclasses_of_methods_are_registered():
    class Plain(mm.InputMixup.__bases__[0].__bases__[0].__bases__[0]):
        pass

    for kind in (Plain, dataclass(type("Thing", (), {}))):
        with pytest.raises(TypeError, match=r"@register\('other'\).*@dataclass"):
            registry.register("other")(kind)


@pytest.mark.parametrize("known", mm.registry.entries(), ids=lambda known: known.name)
def test_what_an_entry_says_fits_its_method(known):
    assert known.summary
    for options in known.examples:
        assert set(options) <= set(known.options)
    for options in known.examples if known.layout != "points" else ():
        assert set(known.required) <= set(options)
    assert {ours.split()[0] for ours in known.published.values()} <= {*known.options, "kappa"}


@pytest.mark.parametrize("known", mm.registry.entries(), ids=lambda known: known.name)
def test_a_method_survives_as_plain_values(known, tmp_path):
    for options in known.examples:
        if any(isinstance(value, torch.nn.Module) for value in options.values()):
            continue
        method = known.method(**options)
        values = json.loads(json.dumps(mm.to_dict(method)))
        assert mm.create(**values) == method
        torch.save(mm.to_dict(method), tmp_path / "method.pt")
        assert mm.create(**torch.load(tmp_path / "method.pt", weights_only=True)) == method


def test_a_choice_of_methods_survives_as_plain_values():
    method = mm.OneOf((mm.CutMix(k=2, p=0.5), mm.ManifoldMixup(layers=("a", None))), (0.3, 0.6))
    assert mm.create(**json.loads(json.dumps(mm.to_dict(method)))) == method


def test_what_has_no_plain_values_is_refused():
    with pytest.raises(ValueError, match="block.*FixedBlock"):
        mm.to_dict(mm.SAMix(block=FixedBlock(), train_block=False))
    with pytest.raises(TypeError, match="method must"):
        mm.to_dict("cutmix")
    for kind in ("os:system", "multimix.core.sampling:seeded", "dataclasses:dataclass", ""):
        with pytest.raises(ValueError, match="block must"):
            mm.create("samix", block={"kind": kind})
