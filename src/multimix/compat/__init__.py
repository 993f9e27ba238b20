"""Drop-in replacements for the mixing of other libraries, and adapters for their trainers.

At K = 1 the replacements take the same arguments and return the same bits; ``k`` adds steps.
"""
