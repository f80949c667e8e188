"""Logs and error messages of installers and services."""
