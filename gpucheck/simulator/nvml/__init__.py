"""The simulated NVML library: its C sources, what it exports, and how it is compiled."""
