"""The simulated CUDA driver library, libcuda.so.1: copies between GPUs, in simulated time. See driver.h."""
