"""Provision NVIDIA GPU hosts and verify that they are ready for multi-GPU training."""
