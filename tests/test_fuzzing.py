"""Random calls of the public functions: each returns a right result or raises an error of ours."""

import pytest

import fuzzing


@pytest.mark.parametrize("first", range(0, 600, 150))
def test_random_calls_are_right_or_rejected(first):
    """``tests/fuzzing.py`` repeats a call by its number; ``make soak`` makes very many."""
    faults = []
    counts = fuzzing.campaign(first, 150, lambda found, number: faults.append(f"{number}: {' | '.join(found)}"))
    assert faults == []
    assert counts[fuzzing.RIGHT] > 40
    assert counts[fuzzing.REFUSED] > 20


def test_the_fuzzer_finds_faults(monkeypatch):
    """A wrong result, and an error that is not ours."""
    monkeypatch.setattr("multimix.core.mixing.torch.lerp", lambda z, *rest, **out: z / 0)
    assert fuzzing.campaign(0, 60)[fuzzing.NOT_FINITE] > 0
    monkeypatch.setattr("multimix.methods.base.check_given", lambda *given: {}["x"])
    assert fuzzing.campaign(0, 60)[fuzzing.FOREIGN] > 0
