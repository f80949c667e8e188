#!/bin/sh
# Written by gpucheck: tuning.acs in stack.yml. Clears ACS on every PCIe bridge between the root and an NVIDIA GPU,
# so that copies between GPUs go through the switch that they share. Devices behind it are no longer isolated.
set -eu
# If setpci cannot run, a bridge must not look like one without the capability.
setpci --version >/dev/null
sys=${1:-/sys}
for gpu in "$sys"/bus/pci/devices/*; do
    [ "$(cat "$gpu/vendor")" = 0x10de ] || continue
    case $(cat "$gpu/class") in 0x0300* | 0x0302*) ;; *) continue ;; esac
    above=$(dirname "$(readlink -f "$gpu")")
    while [ -e "$above/class" ]; do
        bridge=$(basename "$above")
        if setpci -s "$bridge" ECAP_ACS+6.w >/dev/null 2>&1; then
            setpci -s "$bridge" ECAP_ACS+6.w=0000
            left=$(setpci -s "$bridge" ECAP_ACS+6.w)
            [ "$left" = 0000 ] || { echo "$bridge keeps ACS $left" >&2; exit 1; }
        fi
        above=$(dirname "$above")
    done
done
