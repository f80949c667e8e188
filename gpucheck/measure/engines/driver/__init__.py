"""The copy engine on the CUDA driver API: no CUDA toolkit and no framework on the host."""
