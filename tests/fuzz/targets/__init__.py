"""The targets: a module a kind of input."""
