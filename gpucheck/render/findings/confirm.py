"""The command that confirms a finding: it reads and changes nothing."""

import re
from collections.abc import Sequence

from gpucheck.model import Finding
from gpucheck.render.findings.commands import parts

# By cause, where the remedy of a finding names no command that only reads. Options as in the manuals of the programs.
BY_CAUSE = {
    "acs-redirect": "sudo lspci -vvv | grep -e ^[0-9a-f] -e ACSCtl",
    "clock-limited": "nvidia-smi -q -d CLOCK",
    "compute-mode-exclusive": "nvidia-smi -q -d COMPUTE",
    "cpu-clock-low": "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "cross-socket": "nvidia-smi topo -m",
    "device-node-missing": "ls -l /dev/nvidia*",
    "driver-mismatch": "cat /sys/module/nvidia/version; nvidia-smi",
    "driver-not-loaded": "cat /sys/module/nvidia/version; dkms status",
    "ecc-uncorrected": "nvidia-smi -q -d ECC",
    "fabric-degraded": "nvidia-smi -q | grep -A 12 Fabric",
    "fabric-manager-down": "systemctl status nvidia-fabricmanager",
    "fabric-unregistered": "nvidia-smi -q | grep -A 12 Fabric",
    "fabric-version-mismatch": "cat /sys/module/nvidia/version; nv-fabricmanager --version",
    "firmware-missing": "dmesg | grep -e gsp_ -e firmware; ls /lib/firmware/nvidia",
    "geforce-p2p-disabled": "nvidia-smi topo -p2p r",
    "gpu-behind-chipset": "lspci -tv",
    "gpu-busy": "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
    "gpu-lost": "nvidia-smi -L; dmesg | grep -e RmInitAdapter -e Xid",
    "host-memory-error": "dmesg | grep -e EDAC -e 'Hardware Error'",
    "imex-down": "systemctl status nvidia-imex; nvidia-imex-ctl -N",
    "iommu-translation": "cat /sys/kernel/iommu_groups/*/type | sort | uniq -c",
    "memlock-too-small": "ulimit -l",
    "mig-enabled": "nvidia-smi -q | grep -A 2 'MIG Mode'",
    "module-flavour-wrong": "cat /proc/driver/nvidia/version",
    "module-not-built": "dkms status",
    "narrow-by-design": "nvidia-smi -q -d PCIE",
    "nouveau-loaded": "ls -d /sys/module/nouveau",
    "c2c-down": "nvidia-smi c2c -s",
    "c2c-errors": "nvidia-smi c2c -e",
    "nvlink-down": "nvidia-smi nvlink -s",
    "nvlink-errors": "nvidia-smi nvlink -e",
    "nvlink-bandwidth-mode": "nvidia-smi nvlink -s",
    "nvlink-missing": "nvidia-smi nvlink -s",
    "p2p-unsupported-pair": "nvidia-smi topo -p2p r",
    "pcie-errors": "nvidia-smi -q -d PCIE; dmesg | grep AER",
    "pcie-link-downgraded": "nvidia-smi -q -d PCIE",
    "pcie-width-reduced": "nvidia-smi -q -d PCIE",
    "persistence-off": "nvidia-smi -q | grep Persistence",
    "power-cable-missing": "dmesg | grep -e 'power cables' -e Xid",
    "power-limit-lowered": "nvidia-smi -q -d POWER",
    "rebar-off": "nvidia-smi -q -d MEMORY | grep -A 3 BAR1",
    "row-remap": "nvidia-smi -q -d ROW_REMAPPER",
    "sram-threshold": "nvidia-smi -q -d ECC",
    "shm-too-small": "df -h /dev/shm",
    "throttled": "nvidia-smi -q -d PERFORMANCE",
    "uplink-downgraded": "sudo lspci -vv | grep -e ^[0-9a-f] -e LnkCap: -e LnkSta:",
    "vm-no-p2p": "nvidia-smi topo -p2p r",
    "wrong-numa-placement": "nvidia-smi topo -m",
}
READS = re.compile(
    r"(?:sudo )?(?:"
    r"gpucheck (?:verify|bandwidth|collectives|topo|explain|smoke)\b|dmesg\b|journalctl\b|lspci\b|cat /|ls\b|df\b|"
    r"numactl -(?:H|-hardware|s|-show)\b|systemctl status\b|dkms status\b|mokutil --sb-state\b|"
    # nvidia-smi's options that print; -pl, -r, -c, -ac and the like set something.
    r"nvidia-smi(?:$| -L| -q| -i \S+ -q| topo\b| nvlink -[se]| --query)"
    r")"
)
# What sets something after all, or is about another machine.
SETS = re.compile(r"^nvidia-smi.* (?:-pl|-pm|-r|-c|-mig|--gpu-reset)\b|--simulate")
# A cause or a check; a report from elsewhere may hold any text in its place, and this is pasted into shells.
KEY = re.compile(r"[a-z][a-z0-9-]*")
# What the programs of the check would do again.
LINKS = re.compile(r"p2p|host-copies|links-under-load|simultaneous-copies|shared-uplink|cross-socket|pcie-lanes")


def command(findings: Sequence[Finding], *, rerun: bool = True) -> str:
    """Return the command; empty if none is known. findings: equal ones. rerun: gpucheck ran on the same host."""
    first = findings[0]
    named = (part.text.strip() for part in parts(first.fix) if part.is_command)
    read = next((text for text in named if READS.match(text) and not SETS.search(text)), "")
    known = _of_cause(first)
    if read and not (read.startswith("gpucheck") and known):
        return read
    if known or KEY.fullmatch(first.cause or ""):
        return known or f"gpucheck explain {first.cause}"
    if not rerun or not KEY.fullmatch(first.check):
        return ""
    return "gpucheck bandwidth -v" if LINKS.match(first.check) else f"gpucheck verify --only {first.check} -v"


def _of_cause(finding: Finding) -> str:
    if finding.check.startswith("nvlink") and finding.cause == "narrow-by-design":
        return BY_CAUSE["nvlink-down"]
    return BY_CAUSE.get(finding.cause or "", "")
