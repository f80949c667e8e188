#!/bin/sh
# mig.sh record|restore FILE: keep the MIG layout of the GPUs in FILE before the driver changes, and bring it back.
#
# The driver forgets all instances when it is unloaded, and from Hopper on the MIG mode too (NVIDIA's MIG user guide).
# A line of FILE is "mode GPU", or "gi GPU PROFILE PLACEMENT COMPUTE-PROFILES NAME" of a GPU instance.
set -u
LC_ALL=C
export LC_ALL
kept=$2

# The layout of now, with the ID of each GPU instance at the end. A GPU that leaves MIG mode at its next reset has none.
layout() {
    nvidia-smi --query-gpu=index,mig.mode.current,mig.mode.pending --format=csv,noheader 2>/dev/null |
        sed -n 's/^\([0-9][0-9]*\), Enabled, Enabled$/mode \1/p' >"$kept.modes"
    cat "$kept.modes"
    [ -s "$kept.modes" ] || return 0
    { nvidia-smi mig -lci; nvidia-smi mig -lgi; } 2>/dev/null | awk '
        file == "modes" { on[$2] = 1; next }
        /^\| +[0-9]+ +[0-9]+ +MIG / {
            start = $(NF - 1)
            sub(/:.*/, "", start)
            profile[$2, $3, start] = $(NF - 3)
        }
        /^\| +[0-9]+ +MIG / && $2 in on {
            computes = ""
            for (start = 0; start < 16; start++)
                if (($2, $(NF - 2), start) in profile) computes = computes "," profile[$2, $(NF - 2), start]
            print "gi", $2, $(NF - 3), $(NF - 1), (computes == "" ? "-" : substr(computes, 2)), $4, $(NF - 2)
        }' file=modes "$kept.modes" file=instances - | sort
}

# The lines of FILE that the layout of now lacks.
missing() {
    layout >"$kept.now"
    awk 'file == "now" { NF = $1 == "gi" ? 6 : 2; there[$0] = 1; next } !($0 in there)' \
        file=now "$kept.now" file=kept "$kept"
}

record() {
    # What an interrupted run recorded stays until it is restored: the driver may have forgotten a part of it since.
    if [ -s "$kept" ] && [ -n "$(missing)" ]; then
        return 0
    fi
    layout | awk '{ NF = $1 == "gi" ? 6 : 2; print }' >"$kept.new"
    if ! [ -s "$kept.new" ]; then
        rm -f "$kept.new"
        return 0
    fi
    rm -f "$kept.yaml"
    if command -v nvidia-mig-parted >/dev/null; then
        nvidia-mig-parted export >"$kept.yaml" 2>/dev/null || rm -f "$kept.yaml"
    fi
    mv "$kept.new" "$kept"
    echo "recorded: GPUs in MIG mode: $(grep -c '^mode' "$kept"), instances: $(grep -c '^gi' "$kept")"
}

restore() {
    [ -s "$kept" ] || return 0
    [ -n "$(missing)" ] || return 0
    said=''
    if [ -s "$kept.yaml" ]; then
        said=$(nvidia-mig-parted apply -f "$kept.yaml" -c current 2>&1)
        # It knows the number of instances of each kind, and chooses their places.
        if nvidia-mig-parted assert -f "$kept.yaml" -c current >/dev/null 2>&1; then
            echo "restored by nvidia-mig-parted"
            return 0
        fi
    fi
    missing | sort -r >"$kept.due"
    while read -r what gpu profile place computes _; do
        if [ "$what" = mode ]; then
            said="$said $(nvidia-smi -i "$gpu" -mig 1 2>&1)"
            continue
        fi
        # shellcheck disable=SC2046
        set -- $(awk -v gpu="$gpu" -v profile="$profile" -v place="$place" \
            '$1 == "gi" && $2 == gpu && $3 == profile && $4 == place { print $7, $5 }' "$kept.now")
        if [ $# -eq 0 ]; then
            made=$(nvidia-smi mig -i "$gpu" -cgi "$profile:${place%%:*}" 2>&1)
            instance=$(printf '%s\n' "$made" | sed -n 's/.*created GPU instance ID *\([0-9]*\) on.*/\1/p')
            [ -n "$instance" ] || said="$said $made"
            set -- "$instance" -
        fi
        if [ -n "$1" ] && [ "$2" = - ] && [ "$computes" != - ]; then
            said="$said $(nvidia-smi mig -i "$gpu" -gi "$1" -cci "$computes" 2>&1)"
        fi
    done <"$kept.due"
    missing >"$kept.due"
    if [ -s "$kept.due" ]; then
        awk '{
            printf "%s%s", (NR > 1 ? "; " : ""), "GPU " $2 ": "
            printf "%s", $1 == "mode" ? "MIG mode" : $6 " (profile " $3 ") at " $4 ", compute profiles " $5
        }' "$kept.due"
        printf '. nvidia-smi: %s\n' "$(printf '%s' "$said" | tr -s '\n ' '  ' | cut -c 1-400)"
        return 1
    fi
    echo "restored"
}

end=0
case $1 in
record) record ;;
restore) restore || end=1 ;;
esac
rm -f "$kept.modes" "$kept.now" "$kept.due"
[ "$1" = record ] || [ "$end" != 0 ] || rm -f "$kept" "$kept.yaml"
exit "$end"
