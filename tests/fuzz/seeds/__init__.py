"""Real inputs to start from: pastes and cases of tests/data, and what gpucheck itself writes."""
