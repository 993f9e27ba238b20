"""Reproduction: pictures, data, networks, training, evaluation and the command line (extra ``[lab]``)."""
