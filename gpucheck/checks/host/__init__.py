"""Checks of host settings that jobs depend on."""
