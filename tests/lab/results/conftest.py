"""Made-up recipes have a made-up paper."""

import pytest

from multimix.lab.results import rows
from multimix.lab.results.paper import Value, paper_error
from result_rows import PAPER


@pytest.fixture(autouse=True)
def _made_up_paper(monkeypatch):
    def known(recipe, arm, k):
        return Value(PAPER[recipe, arm, k]) if (recipe, arm, k) in PAPER else paper_error(recipe, arm, k)

    monkeypatch.setattr(rows, "paper_error", known)
