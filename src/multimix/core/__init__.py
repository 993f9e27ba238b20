"""Building blocks of methods: plans, sampling, targets, losses, hooks, saliency and checks."""
