"""Training that can be stopped at any moment: step, schedule, checkpoint, loop."""
