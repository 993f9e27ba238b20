"""Names of runs, methods, classes and files are only shown: a page does not take them for HTML, a terminal not for orders."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from rich.console import Console

import multimix.lab
from multimix.lab.cli import main
from multimix.lab.data import Images
from multimix.lab.recipes.runs import RESULTS
from multimix.lab.report.page import Beside, Code, Facts, Finding, Heading, Notes, Picture, Section, render_page
from multimix.lab.report.pages.recipe import write_recipe_pages
from multimix.lab.report.style import panels, png, save
from multimix.lab.report.tables import Table
from multimix.lab.storage import append_row
from multimix.lab.terminal import note, printable, say
from result_rows import made_up_recipe, result_row

SCRIPT, IMAGE, FORMULA = '"><script>alert(1)</script>', "'><img src=x onerror=alert(1)>", r"$\frac{$"
ORDER = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
NAMES = [SCRIPT, IMAGE, FORMULA, ORDER, FORMULA + ORDER, "-->&lt;&amp;", "[/red]{task.x}"]


class Elements(HTMLParser):
    """Which elements a page has, with the names of their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found, self.words = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.add((tag, *sorted(name for name, _ in attributes)))

    def handle_data(self, words):
        self.words.append(words)


def report(folder, name):
    """The page of four runs, of one method that has this name, in folders of this name."""
    recipe = made_up_recipe()
    for arm in ("none", "mixup"):
        for seed in (0, 1):
            row = result_row(recipe, arm, seed=seed)
            shown = {"arm": name, "folder": f"made_up/{name}"} if arm == "mixup" else {"folder": f"made_up/{seed}"}
            append_row(folder / "runs" / RESULTS, {**row, **shown, "environment": {"commit": name}, "device": name})
    (written,) = write_recipe_pages([folder / "runs"], out=folder / "report", recipes={recipe.name: recipe})
    return written.page.read_text()


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    return Elements(report(tmp_path_factory.mktemp("harmless"), "somebody's"))


@pytest.mark.parametrize("name", [name for name in NAMES if ORDER not in name])
def test_a_report_shows_the_names_and_nothing_else(tmp_path, harmless, name):
    found = Elements(report(tmp_path, name))
    assert found.found <= harmless.found | {("td", "class"), ("text", "style", "transform")}, "a long name is folded"
    assert any(name[:9] in words for words in found.words)


@pytest.mark.parametrize("name", [ORDER, "\x9b", "\r", "\b", "\u202e"])
def test_rows_with_orders_in_them_are_left_out(tmp_path, capsys, name):
    with pytest.raises(ValueError, match="there are no finished runs in"):
        report(tmp_path, name)
    assert "line 1 of" in (said := capsys.readouterr().err)
    assert "is damaged and left out" in said


def test_names_of_classes_are_printable():
    assert Images(torch.zeros(1, 1, 2, 2), torch.zeros(1, dtype=torch.int64), (ORDER,)).classes == ("�]0;owned��[2J�31m�",)


@pytest.mark.parametrize("name", NAMES)
def test_every_part_of_a_page_shows_names(name):
    def blocks(name):
        picture = Picture(save("x", labelled(name))["x.svg"], name, name)
        return [
            Section(name, [Heading(name), Finding(name), name, Notes([name]), Code(name)]),
            Table.of_rows(name, [name, name], [[name, name], [name, name]], [name]),
            Table.of_rows(name, [name, name], [[name, name]]),
            Facts({name: name}),
            Beside([picture, Picture(b"\x89PNG", name, name)]),
        ]

    found, harmless = (Elements(render_page(own, own, blocks(own), headline=own)).found for own in (name, "a name"))
    assert {tag for tag, *_ in found} == {tag for tag, *_ in harmless}
    assert not [attributes for _, *attributes in found if any(attribute.startswith("on") for attribute in attributes)]


def labelled(name):
    figure, [axes] = panels()
    (line,) = axes.plot([1, 2], [1, 1000], label=name)
    axes.set_yscale("log")
    axes.set(title=name, xlabel=name)
    axes.set_xticks([1, 2], [printable(name), "b"])
    axes.legend([line], [name])
    figure.text(0.5, 0.5, name)
    return figure


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_takes_no_name_for_a_formula(name):
    figure = labelled(name)
    assert png(figure).startswith(b"\x89PNG")
    shown = [words.get_text() for words in figure.axes[0].yaxis.get_majorticklabels()]
    assert any("10^{" in words for words in shown), "powers of ten are formulas all the same"
    ElementTree.fromstring(save("x", labelled(name))["x.svg"])  # it is sound XML


@pytest.mark.parametrize("name", NAMES)
def test_a_terminal_gets_no_orders(tmp_path, capsys, monkeypatch, name):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich's own orders are of another kind
    monkeypatch.setenv("COLUMNS", "200")
    say(name)
    note(name)
    Console().print(Table.of_rows(name, [name, name], [[name, (name, name)]], [name]))
    assert main(["evaluate", str(tmp_path / name.replace("/", ""))]) == 2
    assert main(["report", str(tmp_path / name.replace("/", ""))]) == 2
    assert main(["data", "fetch", name, "--folder", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert len(out) > 10
    for text in (out, err):
        left = re.sub(r"\x1b\[[\d;]*m", "", text) if ORDER not in name else text
        assert not set(left) & {"\x07", "\x9b", "\u202e"}
        assert "\x1b[2J" not in text
        assert "\x1b]" not in text


def test_no_other_code_prints_what_it_did_not_make():
    """Everything else goes through ``say``, ``note``, ``tell`` or a Table: these print paths the user gave, or our own words."""
    known = {"cli.py": 3, "terminal.py": 2, "sweep/engines.py": 1, "sweep/workers.py": 1}
    known |= {
        "commands/look.py": 2,
        "commands/data.py": 2,
        "commands/train.py": 2,
        "commands/compare.py": 2,
        "commands/demo.py": 1,
    }
    known |= {"evaluation/error.py": 1}
    lab = Path(multimix.lab.__file__).parent
    counts = {str(path.relative_to(lab)): len(re.findall(r"(?<![\w.])print\(", path.read_text())) for path in lab.rglob("*.py")}
    assert {name: count for name, count in counts.items() if count > known.get(name, 0)} == {}
