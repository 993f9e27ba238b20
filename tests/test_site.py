"""The documentation site: built strictly, with links and anchors that exist, and without a request to any other server."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import multimix as mm
from browser import CHROMIUM, FLAGS, in_browser, in_frame

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors it has."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], {"__skip", ""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in {"script", "img", "iframe", "source", "video", "audio"} and given.get("src"):
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") != "canonical":
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="the site needs the extra [docs]")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    beside = {"404.html", "inner.html", "outer.html"}  # the latter two are made by the tests below
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name not in beside}


def test_links_and_anchors_exist(pages):
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in {"http", "https", "mailto"}:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.name}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.name}: {link}"


def test_nothing_is_loaded_from_elsewhere(site, pages):
    assert not [load for page in pages.values() for load in page.loads if urlsplit(load).netloc]
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\s]*", styles)


def test_formulas_are_drawn(site, pages):
    text = (site / "maths.html").read_text(encoding="utf-8")
    assert text.count("<math") > 50
    assert "arithmatex" not in text
    assert "\\lambda" not in re.sub(r"<annotation.*?</annotation>", "", text, flags=re.DOTALL)


def test_every_public_name_is_in_the_api(pages, site):
    anchors = pages[site / "api.html"].anchors
    modules = [name for name in mm.__all__ if isinstance(getattr(mm, name), ModuleType)]
    names = [f"multimix.{name}" for name in mm.__all__ if name not in modules]
    names += [f"multimix.{module}.{name}" for module in modules for name in getattr(mm, module).__all__]
    # Names that are documented at the top, constants and types.
    elsewhere = {f"multimix.registry.{name}" for name in ("create", "register", "to_dict")}
    elsewhere |= {"multimix.losses.Criterion"}
    assert sorted(set(names) - anchors - elsewhere) == []


def test_the_api_shows_all_options_of_a_method(site):
    text = (site / "api.html").read_text(encoding="utf-8")
    for method in (entry.method for entry in mm.registry.entries()):
        if method.__module__.startswith("multimix."):
            signature = text.partition(f'id="multimix.{method.__name__}"')[2].partition("</pre>")[0]
            assert all(f">{option.name}<" in signature for option in fields(method)), method


def test_every_page_can_be_found(pages, site):
    """Each page is in the menu of the first."""
    menu = {(site / unquote(urlsplit(link).path)).resolve() for link in pages[site / "index.html"].links}
    missing = sorted(path.relative_to(site) for path in set(pages) - menu)
    assert missing == [], "add them to nav in mkdocs.yml"


@in_browser
@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("name", ["index", "choose", "maths", "api"])
def test_pages_fit(site, name, width):
    found = in_frame(site / f"{name}.html", width, site)
    assert found["widths"][1] <= found["widths"][0]
    assert all(request.startswith("file:") for request in found["requests"]), found["requests"]
    assert all(found["pictures"])


@in_browser
def test_search_works_from_disk(site, tmp_path):
    """Without a server, and so without workers."""
    address = f"{(site / 'index.html').as_uri()}?q=puzzle"
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}", address]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert re.search(r"\d+ matching documents", dom)
    assert 'methods/puzzlemix.html?h=puzzle"' in dom
