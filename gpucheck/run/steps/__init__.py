"""Steps that are not checks: the record of counters, measurements, training."""
