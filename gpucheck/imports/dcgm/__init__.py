"""What NVIDIA Data Center GPU Manager prints."""
