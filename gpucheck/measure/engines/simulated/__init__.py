"""The simulated copy engine, and the description of the machine that it copies on."""
