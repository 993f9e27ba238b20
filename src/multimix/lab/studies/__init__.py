"""Studies with a page of their own: the spiral, the variance of the gradient, digits, clouds of points."""
