"""What NCCL, its tests and the frameworks above it print."""
