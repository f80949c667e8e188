"""Output of programs that measure GPU links: NVIDIA's samples, nvbandwidth, and suites that run them."""
