"""Writes what follows from the registry between markers: the imports of the built-in methods, the table of methods, the gallery.

python tools/generate.py            write
python tools/generate.py --check    fail if anything is out of date
"""

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multimix.methods.registry import Entry

ROOT = Path(__file__).parents[1]
METHODS = ROOT / "src" / "multimix" / "methods"
CHOOSE = ROOT / "docs" / "choose.md"
CARDS = ROOT / "docs" / "methods"
BENCHMARKS = ROOT / "docs" / "archive" / "benchmarks.md"


def method_imports(before: str) -> str:
    """One import line for every class under ``@register``; those that ``before`` has keep their order, new ones come last."""
    classes = {}
    for path in sorted(METHODS.rglob("*.py")):
        module = ".".join(path.relative_to(METHODS).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            decorators = node.decorator_list if isinstance(node, ast.ClassDef) else []
            if any(isinstance(call, ast.Call) and getattr(call.func, "id", "") == "register" for call in decorators):
                classes[node.name] = f"from .{module} import {node.name}"
    listed = [name for name in re.findall(r"^from \.\S+ import (\w+)$", before, flags=re.MULTILINE) if name in classes]
    order = [*listed, *(name for name in classes if name not in listed)]
    beside = ["Method", "OneOf", "PairMethod", "create", "register", "to_dict"]
    exported = sorted([*beside, *order], key=_as_ruff_sorts)
    lines = ["# isort: off", *(classes[name] for name in order), "# isort: on", "", "__all__ = ["]
    return "\n".join([*lines, *(f'    "{name}",' for name in exported), "]"])


def method_table(before: str) -> str:
    """A line for each built-in method."""
    lines = ["| name | class | what is shared along the path | order guaranteed |", "|---|---|---|---|"]
    for entry in built_in():
        shared, order = (f" {words} " if words else " " for words in (entry.shared, entry.order))
        aliases = "".join(f", `{alias}`" for alias in entry.aliases)
        lines.append(f"| [`{entry.name}`](methods/{entry.name}.md){aliases} | `{entry.method.__name__}` |{shared}|{order}|")
    lines.append("| [label smoothing](methods/label-smoothing.md) | `smoothing=` | | goes with every method |")
    return "\n".join(lines)


def gallery(before: str) -> str:
    """A card for each built-in method: its picture, what it does, what it costs, and what order its steps have."""
    cards = ['<div class="grid cards" markdown>', ""]
    for entry in built_in()[1:]:  # the first is no mixing
        picture = f"![Steps of {entry.name}](methods/img/{entry.name}.png)" if _has_picture(entry.name) else ""
        cost = [f"mixing {_milliseconds(entry.name)} ms"] if _milliseconds(entry.name) else []
        cost += ["a saliency pass"] if "saliency" in entry.method(**entry.examples[0]).traits.needs else []
        card = [
            f"-   **[{entry.method.__name__}](methods/{entry.name}.md)** `{entry.name}`",
            picture,
            f"{entry.summary}.",
            f"*Order:* {entry.order}",
            f"*Cost:* {' and '.join(cost)}" if cost else "",
        ]
        cards += ["\n\n    ".join(filter(None, card)), ""]
    return "\n".join([*cards, "</div>"])


def built_in() -> list["Entry"]:
    """The methods of this package, without plug-ins."""
    sys.path.insert(0, str(ROOT / "src"))
    from multimix.methods.registry import entries

    return [entry for entry in entries() if entry.method.__module__.startswith("multimix.")]


def _has_picture(name: str) -> bool:
    return (CARDS / "img" / f"{name}.png").exists()


def _milliseconds(name: str) -> str:
    """Plan and mix at 32 px, K = 5, from the table of milliseconds, as the method is meant; nothing where it is not in it."""
    table = BENCHMARKS.read_text(encoding="utf-8").partition("| CPU ms, plan + mix")[2] if BENCHMARKS.exists() else ""
    row = rf"^\| {name}(?: at a layer|, MixBlock)?(?: \([^|]*)? \|[^|]*\| ([\d.,]+) \+ ([\d.,]+) \|"
    found = re.findall(row, table, flags=re.MULTILINE)
    total = sum(float(part.replace(",", "")) for part in found[-1]) if found else 0.0
    return f"{total:.0f}" if total >= 10 else f"{total:.1f}" if total else ""


BLOCKS = [
    (METHODS / "__init__.py", "# <methods>\n", "\n# </methods>", method_imports),
    (CHOOSE, "<!-- methods: made by tools/generate.py -->\n", "\n<!-- /methods -->", method_table),
    (CHOOSE, "<!-- gallery: made by tools/generate.py -->\n", "\n<!-- /gallery -->", gallery),
]


def _as_ruff_sorts(name: str) -> tuple[bool, bool, str]:
    """Constants, then classes, then functions."""
    return not name.isupper(), not name[0].isupper(), name


def main(check: bool) -> int:
    stale = []
    for path, begin, end, make in BLOCKS:
        text = path.read_text(encoding="utf-8")
        head, _, rest = text.partition(begin)
        before, _, tail = rest.partition(end)
        made = head + begin + make(before) + end + tail
        if made != text:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(made, encoding="utf-8")
    print(f"{'out of date' if check else 'written'}: {', '.join(stale)}" if stale else "everything is up to date")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
