"""Methods by name, and what is registered about them."""

from .methods.registry import METHODS, Entry, create, entries, entry, register, to_dict

__all__ = ["METHODS", "Entry", "create", "entries", "entry", "register", "to_dict"]
