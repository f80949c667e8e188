"""What to measure, on which GPUs, and which copies at the same time. Pure."""
