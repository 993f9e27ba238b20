"""All that turns rows of finished runs into something to look at: tables, figures, pages."""
