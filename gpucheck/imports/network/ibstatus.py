"""ibstatus: the ports of all cards, which the older script of the same package prints."""

import re

from gpucheck.imports.network._ports import Format, kind

CARD = re.compile(r"^\s{0,12}Infiniband device '([\w.-]{1,60})' port \d{1,3} status:")
FORM = Format(
    card=CARD,
    port=re.compile(r"^\s{0,12}Infiniband device '[\w.-]{1,60}' port (\d{1,3}) status:"),
    fields={
        "state": "state",
        "phys state": "physical",
        "physical state": "physical",
        "rate": "rate",
        "link_layer": "layer",
    },
)
INSIDE = re.compile(r"^\s{0,24}(?:default gid|base lid|sm lid|state|phys(?:ical)? state|rate|link_layer):")
KIND = kind("ibstat", "the output of ibstatus", FORM, INSIDE, ("Infiniband device",), CARD)
