"""All of the paper by one command: what its tables and figures need, each run once, and one page of everything."""
