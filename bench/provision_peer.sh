#!/usr/bin/env bash
# NVIDIA's public Ansible role for the driver against make provision's playbook: same mirror, same two bare lab hosts,
# first and second run, by turns. Wanted: four components in no more time than it needs for the driver, and a second run
# at least five times as fast.
# The role is not part of this project. Fetch it, and the collection that it needs, yourself:
#   git clone https://github.com/NVIDIA/ansible-role-nvidia-driver /tmp/peer/roles/nvidia_driver
#   ansible-galaxy collection install community.general -p /tmp/peer/collections
# usage: ROLE=/tmp/peer/roles/nvidia_driver COLLECTIONS=/tmp/peer/collections bench/provision_peer.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
rounds=${1:-2}
role=${ROLE:?names the folder of the role; the head of this script says where it comes from}
collections=${COLLECTIONS:?names a folder with ansible_collections/community/general}
[ "$(basename "$role")" = nvidia_driver ] || { echo "ROLE=$role: the folder has to be named nvidia_driver" >&2; exit 64; }
lab=${LAB:-gpucheck-peer}
subnet=${GPUCHECK_LAB_SUBNET:-10.213.46.0/24}
mirror=http://${subnet%.*}.10/compute/cuda/repos
out=bench/results/provision-peer-$(date -u +%Y-%m-%d).md
work=$(mktemp -d)
trap 'rm -rf "$work"; "$bin/gpucheck" lab down --name "$lab"' EXIT
export ANSIBLE_ROLES_PATH="$(dirname "$role")" ANSIBLE_COLLECTIONS_PATH=$collections ANSIBLE_FORCE_COLOR=0

bare() { # bare: both hosts as they come from the factory, with what the role asks for and the mirror lacks
  "$bin/gpucheck" lab down --name "$lab"
  "$bin/gpucheck" lab up --name "$lab" --subnet "$subnet"
  # The wheels of torch would be most of our time, and the peer has no such component.
  sed -i 's/^torch: .*/torch: none/' ".lab/$lab/stack.yml"
  for kind in apt dnf; do docker exec -i "$lab-$kind" sh <"bench/peer/prepare-$kind"; done
}

measured() { # measured LABEL PLAYBOOK-WORDS...: one row of the table; what ansible says goes to the log
  local label=$1
  shift
  "$bin/python" bench/_controller.py "$label" 2 "$bin/ansible-playbook" -i ".lab/$lab/inventory.yml" "$@" \
    >>"$work/rows.md" 2>>"$work/log" || { tail -40 "$work/log" >&2; exit 1; }
}

peer() { # its role gathers facts and has no configuration of its own: Ansible's defaults but for SSH pipelining
  ANSIBLE_PIPELINING=true measured "$1" -e "mirror=$mirror" -e '{"boot_time_command": "cut -d\" \" -f22 /proc/1/stat"}' \
    bench/peer/play.yml
}

ours() { # ours LABEL [TAGS]: without verification, and without what else is in TAGS
  ANSIBLE_CONFIG=playbooks/ansible.cfg measured "$1" --skip-tags "verify${2:+,$2}" \
    -e "reports_dir=$work/reports" -e "build_dir=$work/build" -e preflight_minimum_free_gib=1 playbooks/provision.yml
}

for round in $(seq "$rounds"); do
  for who in peer ours; do
    bare >&2
    if [ "$who" = ours ]; then
      ours "ours, first run, four components, round $round" gpucheck,container_toolkit
      ours "ours, container toolkit and gpucheck after it, round $round"
    else
      peer "peer, first run, driver, round $round"
    fi
    for again in 1 2 3; do "$who" "$who, second run, round $round.$again"; done
    docker exec "$lab-apt" modinfo -F version nvidia >"$work/$who-module" 2>&1 || :
  done
done
{
  result_head "make provision's playbook against NVIDIA's Ansible role for the driver, two lab hosts (SIMULATED)"
  echo "Role: $(git -C "$role" log -1 --format='%h of %cs' 2>/dev/null || echo 'of unknown version'), branch 580, without its own" \
    "repository tasks and reboot (bench/peer/play.yml says why). Ours: driver, CUDA, cuDNN and NCCL," \
    "then container toolkit and gpucheck, without verification. ansible-core $("$bin/ansible" --version | sed -n '1s/.*core \([0-9.]*\).*/\1/p')."
  echo
  echo "| run | hosts | wall [s] | controller CPU [s] | a host [s] | memory [MB] |"
  echo "|:---|---:|---:|---:|---:|---:|"
  cat "$work/rows.md"
  echo
  echo "The module that modinfo finds on the apt host afterwards: peer $(cat "$work/peer-module"); ours $(cat "$work/ours-module")."
} >"$out"
echo "written: $out" >&2
