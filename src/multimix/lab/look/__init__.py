"""The K steps of every method on two pictures: a figure, and a page with a slider."""
