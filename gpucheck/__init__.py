"""Provision NVIDIA GPU hosts and verify that they are ready for multi-GPU training."""

# The one place that states the version. Installers know the distribution as gpucheck-cluster: the name gpucheck belongs
# to another project on PyPI.
__version__ = "0.1.0"
