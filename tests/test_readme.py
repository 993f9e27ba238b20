"""The Python in the README and on the pages of docs/ runs as it stands, block after block; links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import multimix as mm
from oracles import seeded

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
# cards, in docs/methods, have test_cards.py
ELSEWHERE = {
    "adapters.md": "adapter_pages.py",
    "extending.md": "methods/test_registry.py",
    "own-data.md": "lab/studies/compare/test_compare.py",
}
RUN_HERE = [
    page for page in PAGES if BLOCK.search(page.read_text()) and page.parent.name != "methods" and page.name not in ELSEWHERE
]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # the compiler looks
@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.name)
def test_python_blocks_run(page):
    torch.manual_seed(0)
    names = {}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, page.name, "exec"), names)
    CHECKS.get(page.name, lambda names: None)(names)


def _rows_of_logits(names):
    assert names["out"].logits.shape == names["out"].target.shape == (80, 10)


def _loop_page(names):
    assert names["part"].logits.shape == names["part"].target.shape == (16, 10)  # the last part
    assert all(weight.grad is not None for weight in names["model"].parameters())
    _checkpointed_blocks_are_exact(names["checkpointed"])


def _checkpointed_blocks_are_exact(checkpointed):
    def trained(method, less_memory):
        torch.manual_seed(0)
        block = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4, momentum=None)
        )
        model = nn.Sequential(block, nn.Tanh(), nn.Flatten(), nn.Linear(4 * 5 * 3, 5))
        if less_memory:
            checkpointed(block)
        for step in range(2):
            x, y = torch.rand(6, 3, 9, 7, generator=seeded(step)), torch.arange(6) % 5
            mm.mixed_forward(model, method, x, y, generator=seeded(step)).loss().backward()
        return {**{name: weight.grad for name, weight in model.named_parameters()}, **dict(model.named_buffers())}

    for method in (mm.InputMixup(k=3), mm.ManifoldMixup(k=3, layers=("0",)), mm.PuzzleMix(k=3, clean_weight=1.0)):
        torch.testing.assert_close(trained(method, less_memory=True), trained(method, less_memory=False))


def _migration_page(names):
    assert (len(names["mixed"]), names["target"].shape) == (80, (80, 10))
    assert all(weight.grad is not None for weight in names["model"].parameters())


def _evaluation_page(names):
    assert len(names["seen"]) == 40


CHECKS = {
    "README.md": _rows_of_logits,
    "index.md": _rows_of_logits,
    "hidden-layers.md": _rows_of_logits,
    "loop.md": _loop_page,
    "migrate.md": _migration_page,
    "evaluation.md": _evaluation_page,
}


def test_the_readme_counts_the_methods():
    methods = [known for known in mm.registry.entries() if known.method.__module__.startswith("multimix.")]
    assert f"has {len(methods) - 1} methods" in README.read_text()  # no mixing is not one


def test_pages_tested_elsewhere_are():
    assert all((ROOT / "docs" / page).exists() and (ROOT / "tests" / test).exists() for page, test in ELSEWHERE.items())


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text()):
        place = page.parent / target
        notebook = place.with_suffix(".ipynb")  # the site has a page for every notebook
        assert place.exists() or (notebook in NOTEBOOKS and place.suffix == ".md"), target


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(notebook, tmp_path):
    pytest.importorskip("nbconvert")
    pytest.importorskip("ipykernel")
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--output-dir", tmp_path, notebook]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / notebook.name).exists()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_keep_small_outputs(notebook):
    text = notebook.read_text()
    assert '"outputs": [\n    {' in text or '"outputs": [\n   {' in text
    assert len(text) < 200_000
