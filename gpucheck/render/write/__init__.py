"""One writer a format: of terminals, pages and Markdown."""
