"""One module per page; each lists the sections of its page."""
