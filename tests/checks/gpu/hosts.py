"""Hosts of GPUs with peer access as a test needs it."""

import msgspec

from tests.checks.judging import with_health
from tests.machines import p100

REFUSED = (("OK", "GNS"), ("GNS", "OK"))
ALL_OK = (("OK", "OK"), ("OK", "OK"))


def geforce(index):
    return msgspec.structs.replace(
        with_health(p100(index)), name="NVIDIA GeForce RTX 4090", device_id="2684", compute_capability="8.9"
    )
