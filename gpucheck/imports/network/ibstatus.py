"""ibstatus: the ports of all cards, which the older script of the same package prints."""

from gpucheck.imports._regex import regex
from gpucheck.imports.network._ports import Format, kind

CARD = regex(r"^\s{0,12}Infiniband device '([\w.-]{1,60})' port \d{1,3} status:")
FORM = Format(
    card=CARD,
    port=regex(r"^\s{0,12}Infiniband device '[\w.-]{1,60}' port (\d{1,3}) status:"),
    fields={
        "state": "state",
        "phys state": "physical",
        "physical state": "physical",
        "rate": "rate",
        "link_layer": "link_layer",
    },
)
INSIDE = regex(r"^\s{0,24}(?:default gid|base lid|sm lid|state|phys(?:ical)? state|rate|link_layer):")
KIND = kind("ibstat", "the output of ibstatus", FORM, INSIDE, ("Infiniband device",), CARD)
