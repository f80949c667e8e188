"""One builder a subject: from its report to a document of blocks."""
