"""What mkdocs does not do by itself: formulas without a script, links to files outside docs/, notebooks as pages."""

import re
from pathlib import Path
from posixpath import normpath

from latex2mathml.converter import convert
from mkdocs.structure.files import File

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}


def on_page_markdown(markdown, *, page, config, **_):
    """Links from docs/ to the rest of the repository lead to its host."""

    def on_host(link):
        target = normpath(f"docs/{page.file.src_uri}/../{link[1]}")
        return link[0] if target.startswith("docs/") else f"]({config.extra['repository']}/blob/main/{target})"

    return re.sub(r"\]\((\.\./[^)]+)\)", on_host, markdown)


def on_page_content(html, **_):
    """Formulas as MathML, which browsers draw in the colour of the text."""

    def drawn(formula):
        latex = re.sub("&(amp|lt|gt);", lambda entity: ENTITIES[entity[0]], formula[2])
        return convert(latex.strip(), display="block" if formula[1] == "div" else "inline")

    return FORMULA.sub(drawn, html)


def on_files(files, *, config):
    """A page for each notebook, with the outputs it was saved with."""
    from nbconvert import MarkdownExporter

    for notebook in sorted(Path(config.docs_dir).glob("notebooks/*.ipynb")):
        text, resources = MarkdownExporter().from_filename(str(notebook))
        link = f"[Download this notebook]({notebook.name}){{ .md-button download }}\n"
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=f"{text}\n{link}"))
        for name, content in resources["outputs"].items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files
