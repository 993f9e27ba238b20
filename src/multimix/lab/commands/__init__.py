"""One file per command: tyro parses by its signature, then it calls what does the work."""
