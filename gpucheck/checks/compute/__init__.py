"""Results, rates, clocks and errors of GPUs under load, as the step compute measured them."""
