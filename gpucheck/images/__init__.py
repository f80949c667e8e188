"""Build container images and verify them from the inside against their declared versions."""
