"""The check of the kernel log."""
