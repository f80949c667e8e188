"""Copy engines: move, time and compare data on GPUs and on simulated machines."""
