"""Create methods by name, list them, and register new ones."""

from .methods.registry import METHODS, Entry, create, entries, entry, register, to_dict

__all__ = ["METHODS", "Entry", "create", "entries", "entry", "register", "to_dict"]
