"""Docstrings as Markdown: examples become code, and names in the manner of Sphinx become plain code."""

import re

from griffe import Extension


class Docstrings(Extension):
    def on_instance(self, *, obj, **_):
        if obj.docstring:
            text = re.sub(r":\w+:`([^`]+)`", r"`\1`", obj.docstring.value)
            text = re.sub(r"(^=+  =.*^=+  =+$)", r"```text\n\1\n```", text, flags=re.MULTILINE | re.DOTALL)
            obj.docstring.value = re.sub(r"(^>>> (?:.+\n?)+)", r"```pycon\n\1\n```\n", text, flags=re.MULTILINE)
