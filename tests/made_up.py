"""Methods that a registry of the tests holds beside the real ones, because something about them is missing."""

from dataclasses import dataclass

from multimix import InputMixup


@dataclass(frozen=True, kw_only=True)
class Needy(InputMixup):
    """Mixup that asks for what nothing gives."""

    name = "needy"
    aliases = ()

    @property
    def needs(self):
        return ("history",)


@dataclass(frozen=True, kw_only=True)
class Demanding(InputMixup):
    """Mixup with an option that has no default."""

    name = "demanding"
    aliases = ()
    strength: float
