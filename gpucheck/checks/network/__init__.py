"""Checks of network cards that carry traffic between the GPUs of hosts."""
