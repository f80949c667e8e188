#!/usr/bin/env bash
# Copies between GPUs: the same lanes by gpucheck, nvbandwidth's and p2pBandwidthLatencyTest's method; device time of a
# run at the default level; what the engine costs to import and to install. Simulated machines, and this host's GPUs.
# Wanted: methods within 1 %; device time 2 GPUs <= 5 s, 8 GPUs through NVSwitch <= 10 s, 8 GPUs over PCIe Gen4 <= 45 s;
# import <= 0.2 s.
# usage: bench/copies.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
out=bench/results/copies-$(date -u +%Y-%m-%d).md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for profile in p100-pcie-x2 hgx-h100-x8 a100-pcie-x8; do
  "$bin/gpucheck" bandwidth --simulate "$profile" --format json --output "$work/report.json"
  "$bin/python" - "$work/report.json" >>"$work/rows" <<'PYTHON'
import json
import sys

r = json.load(open(sys.argv[1]))
cells = (r["simulation"]["profile"], len(r["devices"]), r["rounds"], r["planned_s"], r["device_s"], r["seconds"])
print("|", " | ".join(map(str, cells)), "|")
PYTHON
done
{
  result_head "Copies between GPUs by three methods, device time and costs of the engine"
  for profile in p100-pcie-x2 rtx4090-x2 hgx-h100-x8; do "$bin/python" bench/peer/copies.py "$profile"; echo; done
  # The GPUs of this host, where it has two.
  if command -v nvidia-smi >/dev/null && [ "$(nvidia-smi -L | wc -l)" -ge 2 ]; then "$bin/python" bench/peer/copies.py; echo; fi
  echo "gpucheck bandwidth at its default level (SIMULATED copies, simulated clock):"
  echo
  echo "| machine | GPUs | rounds of one direction | planned device s | device s | process s |"
  echo "|---|---|---|---|---|---|"
  cat "$work/rows"
  echo
  "$bin/python" bench/peer/costs.py
} >"$out"
echo "written: $out" >&2
