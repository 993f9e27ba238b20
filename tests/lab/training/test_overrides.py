from dataclasses import dataclass, field
from typing import Literal

import pytest

from multimix.lab.training.overrides import overridden


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    at: tuple[float, ...] = ()
    pair: tuple[int, int] = (1, 2)
    name: str | None = None
    kind: Literal["a", "b"] = "a"
    on: bool = True


@dataclass(frozen=True)
class Outer:
    epochs: int = 3
    inner: Inner = field(default_factory=Inner)
    size: int | None = None


@pytest.mark.parametrize(
    ("path", "words", "expected"),
    [
        ("epochs", "7", Outer(epochs=7)),
        ("epochs", "1e2", Outer(epochs=100)),
        ("inner.rate", "2e-3", Outer(inner=Inner(rate=0.002))),
        ("inner.rate", "1", Outer(inner=Inner(rate=1.0))),
        ("inner.at", "100,200", Outer(inner=Inner(at=(100.0, 200.0)))),
        ("inner.at", "(1, 2.5)", Outer(inner=Inner(at=(1.0, 2.5)))),
        ("inner.at", "", Outer(inner=Inner(at=()))),
        ("inner.pair", "3,4", Outer(inner=Inner(pair=(3, 4)))),
        ("inner.name", "none", Outer()),
        ("inner.name", "some", Outer(inner=Inner(name="some"))),
        ("inner.kind", "b", Outer(inner=Inner(kind="b"))),
        ("inner.on", "off", Outer(inner=Inner(on=False))),
        ("size", "5", Outer(size=5)),
        ("size", "None", Outer()),
    ],
)
def test_words_become_values(path, words, expected):
    assert overridden(Outer(), {path: words}) == expected
    assert overridden(Outer(), {path.replace("_", "-"): words}) == expected


def test_several_at_once_and_the_first_stays_as_it_is():
    first = Outer()
    assert overridden(first, {"epochs": "9", "inner.rate": "0.5", "inner.kind": "b"}) == Outer(9, Inner(rate=0.5, kind="b"))
    assert first == Outer()


@pytest.mark.parametrize(
    ("path", "words", "sentence"),
    [
        ("epoch", "7", r"no field 'epoch' \(did you mean 'epochs'\?\); there are epochs, inner, size"),
        ("inner.rat", "7", r"no field 'rat' in inner \(did you mean 'rate'\?\); there are rate, at, pair, name, kind, on"),
        ("inner.rate.x", "7", "no field 'x' in inner.rate; there are none"),
        ("inner", "7", "inner has fields of its own, set one of them: inner.rate, inner.at"),
        ("epochs", "many", "epochs must be a whole number, got 'many'"),
        ("epochs", "2.5", "epochs must be a whole number, got '2.5'"),
        ("epochs", "True", "epochs must be a whole number, got 'True'"),
        ("inner.rate", "fast", "inner.rate must be a number, got 'fast'"),
        ("inner.pair", "1,2,3", "inner.pair must be a list of a whole number, got '1,2,3'"),
        ("inner.kind", "c", "inner.kind must be one of a, b, got 'c'"),
        ("inner.on", "maybe", "inner.on must be true or false, got 'maybe'"),
        ("size", "big", "size must be a whole number or none, got 'big'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(path, words, sentence):
    with pytest.raises(ValueError, match=sentence):
        overridden(Outer(), {path: words})
