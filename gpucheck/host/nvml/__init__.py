"""NVML: read in a child process with a deadline, call by call, as old and as new libraries allow."""
