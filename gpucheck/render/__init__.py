"""Render reports as text, JSON, JUnit, Nagios, Prometheus, Markdown and HTML. Contains no verdict logic."""
