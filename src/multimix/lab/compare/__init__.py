"""Which mixing is best for your own data, how sure that is, and at what cost: one command, one page."""
