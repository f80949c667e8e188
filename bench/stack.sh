#!/usr/bin/env bash
# Whole-process time of the stack resolver (hyperfine): one host, and a lock of 1,000 hosts in 50 groups.
# Wanted: resolve <= 0.5 s, lock <= 3 s. Beside them a bare Python start, which is the floor of any Python program.
# usage: bench/stack.sh            needs: hyperfine
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
out=bench/results/stack-$(date -u +%Y-%m-%d).md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# 10 systems x 5 GPU sets = 50 groups of 20 hosts.
"$bin/python" - "$work/facts.json" <<'PYTHON'
import sys
from pathlib import Path

import msgspec

from tests.stack.hosts import host

systems = ["ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04", "debian-12", "debian-13"]
systems += ["rocky-8", "rhel-9", "rocky-9", "almalinux-9", "almalinux-10"]
sets = ["p100-pcie-x2", "v100-sxm2-x8", "a100-sxm4-x8", "h100-sxm5-x8", "b200-x8"]
kinds = [(system, gpus) for system in systems for gpus in sets]
facts = [host(*kinds[n % len(kinds)], f"node{n:04}") for n in range(1000)]
Path(sys.argv[1]).write_bytes(msgspec.json.encode(facts))
PYTHON
printf 'driver: auto\n' >"$work/stack.yml"
# No official torch serves both P100 and B200, so the common set is one without it.
printf 'torch: none\n' >"$work/torchless.yml"
lock="$bin/gpucheck stack lock --spec $work/stack.yml --facts $work/facts.json"
$lock -o "$work/made.lock.yml" 2>/dev/null
groups=$(grep -c '^  [a-z].*-x86_64-.*:$' "$work/made.lock.yml")
hyperfine --warmup 2 --runs 10 --shell none --export-markdown "$work/table.md" \
  --command-name "python -c pass (floor)" "$bin/python -c pass" \
  --command-name "gpucheck --help" "$bin/gpucheck --help" \
  --command-name "stack resolve, 2 x P100" "$bin/gpucheck stack resolve --gpu 15f8 --gpu 15f8 --os ubuntu-22.04" \
  --command-name "stack lock --upgrade, 1000 hosts, $groups groups" "$lock --upgrade -o $work/new.lock.yml" \
  --command-name "stack lock, nothing changed" "$lock -o $work/made.lock.yml" \
  --command-name "stack lock --common, 1000 hosts, $groups groups" \
  "$bin/gpucheck stack lock --common --upgrade --spec $work/torchless.yml --facts $work/facts.json -o $work/common.lock.yml"
{ result_head "gpucheck stack, whole process"; cat "$work/table.md"; } >"$out"
echo "written: $out" >&2
