"""Made-up recipes have a made-up paper."""

import pytest

from multimix.lab.report import study_figures, study_tables
from multimix.lab.report.paper import paper_error
from result_rows import PAPER


@pytest.fixture(autouse=True)
def _made_up_paper(monkeypatch):
    def known(recipe, arm, k):
        return PAPER.get((recipe, arm, k), paper_error(recipe, arm, k))

    for module in (study_tables, study_figures):
        monkeypatch.setattr(module, "paper_error", known)
