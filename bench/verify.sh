#!/bin/sh
# `gpucheck verify --level quick` on simulated machines of 1 to 72 GPUs: seconds and resident memory of the whole process.
# Needs GNU time. Run on an idle machine: bench/verify.sh [RUNS]
set -eu
runs=${1:-5}
printf '%-14s %5s %8s %8s\n' profile GPUs seconds MiB
for row in h200-x1:1 p100-pcie-x2:2 hgx-h100-x8:8 dgx2-v100:16 gb200-nvl72:72; do
    profile=${row%:*}
    gpucheck verify --level quick --simulate "$profile" >/dev/null || [ $? -le 3 ] # makes the machine, which is kept
    i=0
    while [ "$i" -lt "$runs" ]; do
        env time -a -o "${TMPDIR:-/tmp}/gpucheck-bench.$$" -f '%e %M' \
            gpucheck verify --level quick --simulate "$profile" >/dev/null || [ $? -le 3 ]
        i=$((i + 1))
    done
    # The median of the seconds, and the largest memory.
    sort -n "${TMPDIR:-/tmp}/gpucheck-bench.$$" | awk -v p="$profile" -v g="${row#*:}" '
        /^[0-9.]+ [0-9]+$/ { s[++n] = $1; if ($2 > m) m = $2 }
        END { printf "%-14s %5d %8.2f %8.1f\n", p, g, s[int((n + 1) / 2)], m / 1024 }'
    rm -f "${TMPDIR:-/tmp}/gpucheck-bench.$$"
done
