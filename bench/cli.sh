#!/usr/bin/env bash
# Whole-process time of the commands people wait for, beside a peer measured in the same run (hyperfine).
# Wanted: --help <= 0.15 s, topo on 8 and 16 GPUs <= 0.30 and 0.40 s. Peers: a bare Python start, and gpustat
# and nvitop on the same simulated machine.
# usage: bench/cli.sh            needs: hyperfine, and gpustat and nvitop beside gpucheck
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
need "$bin/gpustat" "$bin/pip install gpustat"
need "$bin/nvitop" "$bin/pip install nvitop"
out=bench/results/cli-$(date -u +%Y-%m-%d).md
table=$(mktemp)
trap 'rm -f "$table"' EXIT
on_machine="$bin/gpucheck simulate hgx-h100-x8 --"
hyperfine --warmup 3 --runs 20 --shell none --export-markdown "$table" \
  --command-name "python -c pass (floor)" "$bin/python -c pass" \
  --command-name "gpucheck --help" "$bin/gpucheck --help" \
  --command-name "gpucheck topo, 8 GPUs" "$bin/gpucheck topo --simulate hgx-h100-x8" \
  --command-name "gpucheck topo, 16 GPUs" "$bin/gpucheck topo --simulate dgx2-v100" \
  --command-name "gpucheck verify --level quick, 8 GPUs" "$bin/gpucheck verify --simulate hgx-h100-x8 --level quick" \
  --command-name "gpustat, same machine (peer)" "$on_machine $bin/gpustat -cp" \
  --command-name "nvitop -1, same machine (peer)" "$on_machine $bin/nvitop -1 --ascii"
{ result_head "gpucheck commands, whole process"; cat "$table"; } >"$out"
echo "written: $out" >&2
