#!/usr/bin/env bash
# Whole-process time of the commands people wait for, beside a peer measured in the same run (hyperfine).
# Wanted: --help <= 0.15 s, diagnose of two lines <= 0.2 s, topo on 8 and 16 GPUs and a quick verify of 8 <= 0.3 s. The
# column "Relative" is to the import of click, which every start pays. Peers: gpustat and nvitop on the same machine.
# usage: bench/cli.sh            needs: hyperfine, and gpustat and nvitop beside gpucheck
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
need "$bin/gpustat" "$bin/pip install gpustat"
need "$bin/nvitop" "$bin/pip install nvitop"
out=bench/results/cli-$(date -u +%Y-%m-%d).md
table=$(mktemp) paste=$(mktemp)
trap 'rm -f "$table" "$paste"' EXIT
printf '%s\n' "modprobe: ERROR: could not insert 'nvidia': No such device" \
  "NVRM: Xid (PCI:0000:4c:00): 79, pid=1, GPU has fallen off the bus." >"$paste"
on_machine="$bin/gpucheck simulate hgx-h100-x8 --"
hyperfine --ignore-failure --warmup 3 --runs 20 --shell none --export-markdown "$table" \
  --command-name "python -c 'import click' (floor)" "$bin/python -c 'import click'" \
  --command-name "gpucheck --help" "$bin/gpucheck --help" \
  --command-name "gpucheck diagnose, 2 lines" "$bin/gpucheck diagnose $paste" \
  --command-name "gpucheck topo, 8 GPUs" "$bin/gpucheck topo --simulate hgx-h100-x8" \
  --command-name "gpucheck topo, 16 GPUs" "$bin/gpucheck topo --simulate dgx2-v100" \
  --command-name "gpucheck verify --level quick, 8 GPUs" "$bin/gpucheck verify --simulate hgx-h100-x8 --level quick" \
  --command-name "gpustat, same machine (peer)" "$on_machine $bin/gpustat -cp" \
  --command-name "nvitop -1, same machine (peer)" "$on_machine $bin/nvitop -1 --ascii"
{ result_head "gpucheck commands, whole process"; cat "$table"; } >"$out"
echo "written: $out" >&2
