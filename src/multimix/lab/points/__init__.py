"""Five kinds of bodies as clouds of points, a small PointNet, and a comparison that trains in seconds."""
