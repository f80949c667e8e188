"""Run the plan: one child process a GPU, each step with a deadline, all GPUs at the same time."""
