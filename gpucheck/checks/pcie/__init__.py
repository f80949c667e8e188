"""Checks of PCIe: links, path to the CPU, errors, address translation, ACS and BAR1."""
