"""Blocks of stack.yml that choose no version: host tuning, device isolation, module options, the IMEX service."""
