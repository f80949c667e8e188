"""Copy engines: how data is moved, timed and compared on GPUs, on CPU processes and on simulated machines."""
