"""Collectives between ranks, as the step collectives ran them; their rates are evaluated with those of copies."""
