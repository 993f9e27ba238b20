"""Five kinds of bodies as clouds of points, a small PointNet, and ``multimix points``: SageMix compared with no mixing."""
