"""One module per subject. Each holds ``rule(case)``, which yields findings."""
