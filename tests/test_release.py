"""What a release consists of: versions that agree, links that an index page can resolve, imports that no system forbids."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import multimix

ROOT = Path(__file__).parents[1]
ADDRESS = "https://github.com/multimix/multimix"

# Every module of the package where nothing can be imported that only POSIX has. What needs packages that are missing is left out.
EVERYTHING = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in {"fcntl", "resource", "termios", "pwd", "grp", "pty", "tty", "syslog", "posix_ipc"}:
            raise ImportError(f"{name} exists on POSIX systems only")

import torch
for name in ("fcntl", "resource", "termios", "pwd", "grp", "pty", "tty"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Refuse())
import multimix
for module in pkgutil.walk_packages(multimix.__path__, "multimix."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] == "multimix":
            raise
print("imported")
"""


def test_versions_agree():
    released = re.findall(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert released[0] == multimix.__version__
    assert f"\nversion: {multimix.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_links_of_the_index_page_are_whole():
    """The rules of pyproject.toml applied to the README as the build does: links to files that exist, under one address."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 or later")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = (ROOT / "README.md").read_text()
    for rule in settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    assert "--8<--" not in text
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("#")]
    assert len(links) > 25
    for link in links:
        kind, _, path = link.removeprefix(f"{ADDRESS}/").partition("/main/")
        assert link.startswith("https://")
        if link.startswith(ADDRESS):
            assert kind == ("raw" if path.endswith(".png") else "blob"), link
            assert (ROOT / path.partition("#")[0]).exists(), link
    assert all(value.startswith(ADDRESS) for value in settings["project"]["urls"].values())


@pytest.mark.parametrize("file", ["mkdocs.yml", "CITATION.cff", "pyproject.toml"])
def test_the_address_is_the_same_everywhere(file):
    addresses = re.findall(r"https://github\.com/[\w-]+/[\w-]+", (ROOT / file).read_text())
    assert set(addresses) == {ADDRESS}


def test_templates_and_citation_can_be_read():
    yaml = pytest.importorskip("yaml")
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        assert path.name == "config.yml" or {"name", "description", "body"} <= set(form)
        assert all(field["attributes"]["label"] for field in form.get("body", []))
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert {"run": ".ci/run"} in workflow["jobs"]["linux"]["steps"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert [author["family-names"] for author in citation["preferred-citation"]["authors"]] == ["Shen", "Yu", "Yang", "Kwok"]


def test_everything_imports_without_posix():
    done = subprocess.run([sys.executable, "-c", EVERYTHING], capture_output=True, text=True, timeout=300)
    assert done.stdout.endswith("imported\n"), done.stderr[-2000:]
