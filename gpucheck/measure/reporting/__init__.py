"""Convert the results of a run to observations, gaps and the report. Pure functions."""
