#!/usr/bin/env bash
# What one controller takes for many hosts: containers with sshd, facts, plans and packages real, hardware SIMULATED.
# Wanted: 100 hosts that are as planned, at most 0.5 s of controller CPU a host.
# usage: bench/scale.sh [HOSTS=100] [FIRST=10]     FIRST: hosts of the run that installs everything; 0 leaves it out
# The hosts run on this machine too: the wall times are theirs more than the controller's.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
hosts=${1:-100}
first=${2:-10}
lab=${LAB:-gpucheck-scale}
subnet=${GPUCHECK_LAB_SUBNET:-10.213.47.0/24}
out=bench/results/scale-$(date -u +%Y-%m-%d).md
work=$(mktemp -d)
trap 'rm -rf "$work"; "$bin/gpucheck" lab down --name "$lab" 2>/dev/null' EXIT
export ANSIBLE_CONFIG=playbooks/ansible.cfg

up() { # up HOSTS
  "$bin/gpucheck" lab up --name "$lab" --subnet "$subnet" --light "$1" >&2
}

measured() { # measured LABEL HOSTS WORDS...: one row of the table
  local label=$1 count=$2
  shift 2
  "$bin/python" bench/_controller.py "$label" "$count" "$bin/ansible-playbook" -i ".lab/$lab/inventory.yml" \
    --limit "gpu[0:$((count - 1))],localhost" -e "reports_dir=$work/reports" -e "build_dir=$work/build" \
    -e preflight_minimum_free_gib=1 "$@" playbooks/provision.yml | tee -a "$work/rows.md" >&2
}

"$bin/gpucheck" lab down --name "$lab" >&2
if [ "$first" -gt 0 ]; then
  up "$first"
  measured "first run: everything is installed, rebooted, verified" "$first"
  "$bin/gpucheck" lab down --name "$lab" >&2
fi
up 1
measured "first run of a single host" 1
up "$hosts"
measured "one small change on every host" "$hosts" --skip-tags verify
for count in 10 50 "$hosts"; do
  [ "$count" -le "$hosts" ] || continue
  measured "as planned" "$count" --skip-tags verify
  measured "as planned, and verified" "$count"
done
{
  result_head "One controller and many hosts (light lab hosts, SIMULATED)"
  echo "ansible-core $("$bin/ansible" --version | sed -n '1s/.*core \([0-9.]*\).*/\1/p'), forks $(sed -n 's/^forks = //p' playbooks/ansible.cfg)." \
    "CPU is user and system time of ansible-playbook and everything it starts, ssh included, without the hosts."
  echo
  echo "| run | hosts | wall [s] | controller CPU [s] | a host [s] | memory [MB] |"
  echo "|:---|---:|---:|---:|---:|---:|"
  cat "$work/rows.md"
} >"$out"
echo "written: $out" >&2
