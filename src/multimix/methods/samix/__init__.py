"""SAMix: masks from a network that learns beside the model."""
