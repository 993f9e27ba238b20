"""Drop-ins for other libraries' mixing: the same arguments and, at K = 1, the same bits; ``k`` makes it multi-mix."""
