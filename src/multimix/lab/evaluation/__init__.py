"""What trained networks are worth: a measure is an entry of ``names.MEASURES`` and a module of the same name."""
