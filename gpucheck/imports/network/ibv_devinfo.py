"""ibv_devinfo: cards as user space sees them."""

from gpucheck.imports._regex import regex
from gpucheck.imports.network._ports import Format, kind

CARD = regex(r"^\s{0,12}hca_id:\s{1,16}([\w.-]{1,60})")
FORM = Format(
    card=CARD,
    port=regex(r"^\s{0,40}port:\s{1,16}(\d{1,3})\s*$"),
    fields={
        "vendor_part_id": "model",
        "sys_image_guid": "card",
        "state": "state",
        "phys_state": "physical",
        "link_layer": "link_layer",
    },
)
INSIDE = regex(
    r"^\s{0,48}(?:transport|fw_ver|node_guid|sys_image_guid|vendor_id|vendor_part_id|hw_ver|board_id|phys_port_cnt|port|state|"
    r"max_\w{2,40}|active_\w{3,10}|sm_lid|port_\w{3,20}|link_layer|phys_state|page_size_cap|device_cap\w{0,20}|local_ca_\w{3,20}|"
    r"atomic_cap|\w{3,30}_caps?|odp_caps|hca_core_clock|GID\[|\w{2,30}_(?:count|len|supported|mask|delay|lid|lmc|sl|timeout))"
    r"\s{0,4}:|^\s{8,60}[A-Z][A-Z0-9_]{4,40}\s*$|^\s{0,48}GID\["
)
KIND = kind("ibv_devinfo", "the output of ibv_devinfo", FORM, INSIDE, ("hca_id",), CARD)
