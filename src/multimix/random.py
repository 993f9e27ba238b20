"""Random partners and λ paths, and the state of the random stream for checkpoints."""

from .core.sampling import random_partner, random_state, sample_path, set_random_state

__all__ = ["random_partner", "random_state", "sample_path", "set_random_state"]
