"""Checks of NVLink: links, errors, fabric manager and IMEX."""
