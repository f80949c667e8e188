"""What computes: torch on GPUs and on the CPU, and simulated GPUs with ceilings, heat and power."""
