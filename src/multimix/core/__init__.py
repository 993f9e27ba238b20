"""What methods are built on: plans, sampling, targets, losses, hooks, saliency, checks, devices."""
