"""Output of programs that measure GPU links."""
