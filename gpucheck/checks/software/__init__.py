"""Checks of the installed software: driver, kernel module, libraries, frameworks and container engines."""
