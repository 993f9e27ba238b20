"""Create methods by name, list them, and register new ones."""

from .methods.registry import Entry, create, entries, entry, register, to_dict

__all__ = ["Entry", "create", "entries", "entry", "register", "to_dict"]
