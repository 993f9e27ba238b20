"""The commands, one file each; tyro parses the command line by the signature of its function."""
