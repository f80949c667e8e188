"""Rules that every set satisfies; their docstrings are the page docs/stack-rules.md."""
