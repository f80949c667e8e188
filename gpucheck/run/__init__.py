"""Run the checks and measurements of a host, and build one report."""
