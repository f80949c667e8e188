"""The simulated CUDA driver library."""
