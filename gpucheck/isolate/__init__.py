"""Find the nodes that make a large job slow or hang: collectives between a few nodes at a time, in few rounds."""
