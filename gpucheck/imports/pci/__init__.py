"""PCI devices and how they are connected."""
