"""The README's Python runs as it stands, block after block."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_python_blocks_run():
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(blocks) >= 4
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert names["logits"].shape == names["target"].shape


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:|#)([^)]+)\)", TEXT):
        assert (Path(__file__).parents[1] / target).exists(), target
