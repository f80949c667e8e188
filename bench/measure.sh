#!/usr/bin/env bash
# Device time (by the simulated clock) and whole-process time of gpucheck bandwidth at its default depth.
# Wanted: 2 GPUs <= 10 s, 8 GPUs through NVSwitch <= 20 s, 8 GPUs over PCIe Gen4 <= 45 s of device time.
# usage: bench/measure.sh [PCIE-PROFILE]      the simulated machine for the third row, default rtx4090-x8
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
out=bench/results/measure-$(date -u +%Y-%m-%d).md
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
for profile in p100-pcie-x2 hgx-h100-x8 "${1:-rtx4090-x8}"; do
  "$bin/gpucheck" bandwidth --simulate "$profile" --format json 2>/dev/null |
    "$bin/python" -c '
import json, sys
r = json.load(sys.stdin)
print("|", r["simulation"]["profile"], "|", len(r["devices"]), "|", r["rounds"], "|", r["planned_s"], "|", r["device_s"], "|", r["seconds"], "|")
' >>"$rows"
done
{
  result_head "gpucheck bandwidth at its default depth, simulated clock"
  echo "| machine | GPUs | rounds of one direction | planned device s | device s | process s |"
  echo "|---|---|---|---|---|---|"
  cat "$rows"
} >"$out"
echo "written: $out" >&2
