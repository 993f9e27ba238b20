"""SageMix: clouds of points, matched and mixed point by point."""
