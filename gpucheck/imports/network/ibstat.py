"""ibstat: cards with their ports, state and rate."""

from gpucheck.imports._regex import regex
from gpucheck.imports.network._ports import Format, kind

CARD = regex(r"^\s{0,12}CA '([\w.-]{1,60})'")
FORM = Format(
    card=CARD,
    port=regex(r"^\s{0,24}Port (\d{1,3}):\s*$"),
    fields={
        "ca type": "model",
        "system image guid": "card",
        "state": "state",
        "physical state": "physical",
        "rate": "rate",
        "link layer": "link_layer",
    },
)
INSIDE = regex(
    r"^\s{0,32}(?:CA type|Number of ports|Firmware version|Hardware version|Node GUID|System image GUID|"
    r"Port \d{1,3}|State|Physical state|Rate|Base lid|LMC|SM lid|Capability mask|Port GUID|Link layer)\s{0,4}:"
)
KIND = kind("ibstat", "the output of ibstat", FORM, INSIDE, ("CA '",), CARD)
