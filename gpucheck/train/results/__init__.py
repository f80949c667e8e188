"""The reports of all ranks merged into one result: communication and performance. Pure."""
