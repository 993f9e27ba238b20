"""RecursiveMix: the batch mixed before, pasted into the next."""
