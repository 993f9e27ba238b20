"""Methods that tests register beside the real ones, most of them because something about them is missing."""

from dataclasses import dataclass

from multimix import InputMixup
from multimix.methods import registry


def add_methods(monkeypatch, *kinds):
    """Register ``kinds`` until the end of the test, each by its name in lower case, with the alias ``<name>_alias``."""
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    for kind in kinds:
        name = kind.__name__.lower()
        registry.register(name, aliases=(f"{name}_alias",))(kind)


@dataclass(frozen=True, kw_only=True)
class Dummy(InputMixup):
    """Mixup under another name."""


@dataclass(frozen=True, kw_only=True)
class Needy(InputMixup):
    """Mixup that asks for what nothing gives."""

    @property
    def traits(self):
        return super().traits._replace(needs=("history",))


@dataclass(frozen=True, kw_only=True)
class Demanding(InputMixup):
    """Mixup with an option that has no default."""

    strength: float
