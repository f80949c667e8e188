#!/usr/bin/env bash
# Device time (by the simulated clock) and whole-process time of gpucheck bandwidth at its default depth, and the
# whole-process time of gpucheck diagnose on eight GPUs. Wanted: 2 GPUs <= 10 s, 8 GPUs through NVSwitch <= 20 s, 8 GPUs
# over PCIe Gen4 <= 45 s of device time; diagnose <= 0.4 s.
# The same lanes by gpucheck, nvbandwidth's and p2pBandwidthLatencyTest's method: bench/peer/copies.py.
# usage: bench/measure.sh        needs: hyperfine
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
out=bench/results/measure-$(date -u +%Y-%m-%d).md
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
"$bin/python" - "$work" <<'PYTHON'
import json
import sys
from pathlib import Path

from tests.diagnose.machines import Shape, healthy, slow_uplink

for name, seen in (("healthy", healthy(Shape(8, 4, 2, 4))), ("slow-uplink", slow_uplink(Shape(8, 4, 2, 4)))):
    Path(sys.argv[1], f"{name}.yml").write_text(json.dumps(seen))
PYTHON
# 2 is the slow uplink, and an answer.
hyperfine --warmup 2 --runs 10 --shell none --ignore-failure --export-markdown "$work/diagnose.md" \
  --command-name "python -c pass (floor)" "$bin/python -c pass" \
  --command-name "gpucheck diagnose, 8 healthy GPUs" "$bin/gpucheck diagnose --observations $work/healthy.yml" \
  --command-name "gpucheck diagnose, a slow uplink" "$bin/gpucheck diagnose --observations $work/slow-uplink.yml"
{
  result_head "gpucheck bandwidth at its default level (SIMULATED copies, simulated clock), and gpucheck diagnose"
  echo "| machine | GPUs | rounds of one direction | planned device s | device s | process s |"
  echo "|---|---|---|---|---|---|"
  cat "$work/rows"
  echo
  cat "$work/diagnose.md"
  echo
  for profile in p100-pcie-x2 hgx-h100-x8; do "$bin/python" bench/peer/copies.py "$profile"; echo; done
  # The GPUs of this host, where it has two.
  if command -v nvidia-smi >/dev/null && [ "$(nvidia-smi -L | wc -l)" -ge 2 ]; then "$bin/python" bench/peer/copies.py; fi
} >"$out"
echo "written: $out" >&2
