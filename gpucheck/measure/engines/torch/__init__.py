"""The copy engine of torch on CUDA."""
