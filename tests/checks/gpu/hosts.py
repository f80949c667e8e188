"""Hosts of GPUs with peer access as a test needs it."""

import msgspec

from tests.checks.judging import with_health
from tests.fakes import SYSTEM, facts
from tests.machines import p100, reading

REFUSED = (("OK", "GNS"), ("GNS", "OK"))
ALL_OK = (("OK", "OK"), ("OK", "OK"))


def host(*gpus, p2p=ALL_OK, virtual=None):
    told = msgspec.structs.replace(reading(*gpus), p2p={"read": p2p, "write": p2p, "nvlink": p2p})
    return facts(nvml=told, system=msgspec.structs.replace(SYSTEM, virtual=virtual))


def geforce(index):
    return msgspec.structs.replace(
        with_health(p100(index)), name="NVIDIA GeForce RTX 4090", device_id="2684", compute_capability="8.9"
    )
