"""gpucheck: from bare Linux hosts with NVIDIA GPUs to proven multi-GPU training readiness."""
