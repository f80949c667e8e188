"""Copy engines: move, time and compare data on GPUs, on CPU processes and on simulated machines."""
