"""PyTorch: one rank from the import of torch to its report. torch is imported in functions only."""
