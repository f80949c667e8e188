#!/bin/sh
# What gpucheck-prolog, gpucheck-epilog, gpucheck-health and gpucheck-idle share; install it in their directory.
#
# gpucheck verify --format slurm prints a line for the verdict, a line for each finding, and "end":
#   gpucheck.slurm/1 fail 1
#   fail node reset-gpu gpucheck:nvlink-down g2 17/18 reset-gpu
#   end
# A node is changed only after a complete result whose verdict matches the exit status (0 to 3).
# The scripts that read it use what is set here:
# shellcheck disable=SC2034
# Slurm runs a prolog and an epilog without PATH. Provisioning installs gpucheck in the last directory.
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}:/opt/gpucheck/bin
export PATH
policy=${GPUCHECK_SLURM_POLICY:-/etc/gpucheck/slurm-policy}
# The last complete result of a node, which the prolog reads. It does not survive a reboot.
results=${GPUCHECK_SLURM_RESULTS:-/run/gpucheck/slurm}
# The last complete result of gpucheck-idle. It survives a reboot, and counts until the next one.
tests=${GPUCHECK_SLURM_TESTS:-/var/lib/gpucheck/slurm}
# Typed by hand, there is no SLURMD_NODENAME, and the node may have another name than the host.
node=${SLURMD_NODENAME:-$(scontrol show aliases "$(hostname -s)" 2>/dev/null | sed -n '1s/^\([A-Za-z0-9_.-]*\)$/\1/p')}
node=${node:-$(hostname -s)}
me=${0##*/}
what=nothing verdict=none unknowns=0 undrain=no percent=0 age=0 days=0 never='' reason=''
drained=no provisioned=no comment='' why=''
provisioning='gpucheck-provision: driver change'
# A run of provisioning writes it again with each of its steps, and removes it at its end.
lock=${GPUCHECK_SLURM_LOCK:-/var/lib/gpucheck/run.lock}

# One line of printable ASCII, 200 characters at most.
tell() {
    printf '%s: %s: %s\n' "$me" "$node" "$(printf '%s' "$1" | LC_ALL=C tr -c '\040-\176' '?' | cut -c 1-200)" >&2
}

# Whether this is a file of root, or of the user who runs, that not everybody may write.
is_private() {
    [ -n "$(find -L "$1" -prune -type f ! -perm -002 \( -user 0 -o -user "$(id -u)" \) 2>/dev/null)" ]
}

# The result in a file, at most 64 KiB of it.
kept() { ! is_private "$1" || head -c 65536 "$1"; }

keep() {
    (umask 077 && mkdir -p "$1" && printf '%s\n' "$answer" >"$1/.$node" && mv -f "$1/.$node" "$1/$node")
}

# Runs verify at level $1 with what else it takes, keeps its complete result and applies the policy: sets verdict, unknowns,
# what (drain, down, comment, nothing), reason, undrain, never, percent, age and days. Returns 1 without a complete result
# or a complete policy. The exit status is appended to a result, so that a truncated line is detected.
check_node() {
    has_policy || return 1
    level=$1 seconds=50
    [ "$level" = quick ] || seconds=1500
    shift
    answer=$({ timeout --kill-after=5 "$seconds" gpucheck verify --level "$level" --format slurm "$@"; printf 'status %s\n' "$?"; } | head -c 65536)
    decide || return 1
    keep "$results"
    if [ "$level" = quick ]; then also_tested; else keep "$tests"; fi
}

# Applies the policy to what was kept, and runs nothing.
read_kept() {
    has_policy || return 1
    answer=$(kept "$results/$node") without=''
    if [ -z "$answer" ]; then
        without="gpucheck-health and gpucheck-epilog have left no result since the boot"
    elif decide && [ -n "$(find "$results/$node" -mmin "+$age" 2>/dev/null)" ]; then
        what=nothing without="the last result is older than max-age-minutes $age"
    fi
    also_tested
    case $what in drain | down) ;; *) [ -z "$without" ] || tell "the job is started: $without" ;; esac
}

# The last result of gpucheck-idle counts as well: the worse decides, and what is UNKNOWN in either.
also_tested() {
    answer=$(kept "$tests/$node")
    now="$what $verdict $unknowns $reason"
    [ -n "$answer" ] && decide || return 0
    # shellcheck disable=SC2086
    set -- $now
    unknowns=$((unknowns + $3))
    case "$1 $what" in nothing\ [!n]* | comment\ d* | 'drain down') return 0 ;; esac
    what=$1 verdict=$2
    shift 3
    reason=$*
}

has_policy() {
    if ! [ -r "$policy" ]; then
        tell "left as it is: no policy $policy"
        return 1
    fi
    is_private "$policy" || { tell "left as it is: $policy is not a file of root that others may not write"; return 1; }
}

# Applies the policy to $answer. Returns 1 if either is not complete.
decide() {
    status=${answer##*status }
    case $status in *[!0-9]* | '') status=unknown ;; esac
    # shellcheck disable=SC2016
    decision=$(printf '%s\n' "$answer" | LC_ALL=C awk -v status="$status" '
        function fail(words) { if (wrong == "") wrong = words }
        function rank(word) { return word in ranks ? ranks[word] : -1 }
        BEGIN {
            ranks["nothing"] = 0; ranks["comment"] = 1; ranks["drain"] = 2; ranks["down"] = 3
            split("pass warn fail unknown", verdicts); best = 0; most = 1; undrain = "no"; percent = -1; age = 120; days = 0
            if (status !~ /^[0-3]$/) fail("no verdict (exit status " status ")")
        }
        file == "policy" {
            sub(/\r$/, "")
            if ($0 ~ /^[ \t]*(#|$)/) next
            bad = "policy, line " FNR ": not understood: " $0
            if (($1 == "cause" || $1 == "owner" || $1 == "action") && NF == 3 && rank($3) >= 0) {
                key[++rules] = $1; value[rules] = $2; does[rules] = $3
            } else if ($1 == "warnings" && NF == 2 && rank($2) >= 0) most = rank($2)
            else if ($1 == "undrain" && NF == 2 && ($2 == "yes" || $2 == "no")) undrain = $2
            else if ($1 == "undrain-never") { for (i = 2; i <= NF; i++) never = never "," $i }
            else if ($1 == "max-drained-percent" && NF == 2 && $2 ~ /^[0-9]+$/ && $2 <= 100) percent = $2
            else if ($1 == "idle-test-days" && NF == 2 && $2 ~ /^[0-9]+$/) days = $2
            else if ($1 == "max-age-minutes" && NF == 2 && $2 ~ /^[0-9]+$/) age = $2
            else fail(bad)
            next
        }
        { line[++n] = $0 }
        n == 1 { if (NF == 3 && $1 == "gpucheck.slurm/1" && $3 ~ /^[0-9]+$/) { verdict = $2; count = $3 } next }
        n > 1 && n <= count + 1 {
            if ($0 !~ /^(fail|warn|unknown) (node|user|site) [a-z-]+ gpucheck:[a-z0-9-]+ [A-Za-z0-9,.\/+ -]+$/ || length($0) > 200) broken = 1
            said[$1]++
            cause = substr($4, 10)
            does_this = "nothing"
            for (i = 1; i <= rules; i++)
                if ((key[i] == "cause" && value[i] == cause) || (key[i] == "owner" && value[i] == $2) || (key[i] == "action" && value[i] == $3)) { does_this = does[i]; break }
            this = rank(does_this)
            if ($1 == "unknown") this = 0
            if ($1 == "warn" && this > most) this = most
            if (this > best) { best = this; reason = $0; sub(/^[^ ]+ [^ ]+ [^ ]+ /, "", reason) }
        }
        END {
            whole = n == count + 3 && line[count + 2] == "end" && line[n] == "status " status && !broken
            if (!whole || verdict != verdicts[status + 1] || (verdict == "pass" && count > 0) || ((verdict == "warn" || verdict == "fail") && !said[verdict]) || (verdict != "fail" && said["fail"])) fail("no verdict (exit status " status ")")
            if (percent < 0) fail("policy: max-drained-percent is missing")
            if (wrong != "") { print "wrong " wrong; exit }
            for (word in ranks) if (ranks[word] == best) what = word
            print what, verdict, said["unknown"] + 0, undrain, percent, age, days, (never == "" ? "," : never ","), reason
        }' file=policy "$policy" file=answer -)
    case $decision in
    'wrong '*)
        tell "left as it is: ${decision#wrong }: $(printf '%s' "$answer" | head -n 1)"
        return 1
        ;;
    '')
        tell "left as it is: the policy could not be applied"
        return 1
        ;;
    esac
    # shellcheck disable=SC2034
    read -r what verdict unknowns undrain percent age days never reason <<EOF
$decision
EOF
}

# Sets drained (no, here: by these scripts, elsewhere), and its reason (why) and comment. A node that provisioning drained
# has exactly its reason; it is between two drivers, and nothing of it is changed, whatever its state.
read_node() {
    shown=$(scontrol show node "$node" --oneliner 2>/dev/null)
    why=$(printf '%s' "$shown" | sed -n 's/.* Reason=//p' | sed 's/ Comment=.*//' | head -n 1)
    comment=$(printf '%s' "$shown" | sed -n 's/.* Comment=//p' | sed 's/ Reason=.*//' | head -n 1)
    state=$(printf '%s' "$shown" | sed 's/ Reason=.*//; s/ Comment=.*//' | sed -n 's/.* State=\([^ ]*\).*/\1/p' | head -n 1)
    case $state in
    '') drained=unknown ;;
    *DRAIN*) case $why in gpucheck:[a-z0-9]*) drained=here ;; *) drained=elsewhere ;; esac ;;
    *DOWN*) case $why in gpucheck:[a-z0-9]*) drained=here ;; esac ;;
    esac
    provisioned=no
    case $why in "$provisioning" | "$provisioning ["* | "$provisioning : "*) drained=elsewhere provisioned=yes ;; esac
    # One of them is words in a comment, and which one is not known.
    case $shown in *' Reason='*' Reason='*) drained=unknown ;; esac
}

# Whether this node may be among those that gpucheck drains; $1 is "before" or "after" it was drained.
within_share() {
    # shellcheck disable=SC2016
    room=$(scontrol show nodes --oneliner 2>/dev/null | LC_ALL=C awk -v me="$node" -v percent="$percent" -v when="$1" '
        /^NodeName=/ {
            total++
            name = substr($1, 10)
            ours = $0 ~ / State=[^ ]*(DRAIN|DOWN)/ && $0 ~ / Reason=gpucheck:[a-z0-9]/
            if (ours && name != me) { others++; if (name < me) first++ }
        }
        END {
            allowed = int(total * percent / 100)
            if (allowed < 1) allowed = 1
            # Several nodes may have drained themselves at the same time: the first by name stay drained.
            print total == 0 ? "unknown" : (when == "before" ? others : first) + 1 <= allowed ? "yes" : "no"
        }')
    [ "$room" = yes ]
}

# Drains this node for $reason, as State $1. Returns 1 if it was not drained.
drain_node() {
    if [ "$drained" = here ]; then
        # sinfo and scontrol show the user and the time behind the reason. A cause after which a person resumes stays.
        case $why in "$reason" | "$reason ["*) return 0 ;; esac
        cause=${why#gpucheck:}
        case $never in *",${cause%%[!a-z0-9-]*},"*) return 0 ;; esac
    elif ! within_share before; then
        tell "not drained: max-drained-percent $percent is reached or the nodes could not be counted: $reason"
        return 1
    fi
    if ! scontrol update NodeName="$node" State="$1" Reason="$reason"; then
        tell "not drained: scontrol failed: $reason"
        return 1
    fi
    if [ "$drained" != here ] && ! within_share after; then
        scontrol update NodeName="$node" State=RESUME
        tell "resumed: other nodes were drained at the same time, more than max-drained-percent $percent: $reason"
        return 1
    fi
}

# Sets the comment of this node, unless another program or person set one.
comment_node() {
    case $comment in '' | '(null)' | gpucheck:*) ;; *) return 0 ;; esac
    [ "$comment" = "$1" ] || [ "$comment$1" = '(null)' ] || scontrol update NodeName="$node" Comment="$1"
}

# Whether a run of provisioning changes this node: between two drivers every result is bad.
provisioning_runs() {
    [ "$provisioned" = yes ] || [ -n "$(find "$lock" -mmin -60 2>/dev/null)" ]
}

# Drains this node, or resumes it and sets its comment, after a result that is not UNKNOWN.
apply_result() {
    if [ "$verdict" = unknown ]; then
        tell "left as it is: the verdict is UNKNOWN"
        return 0
    fi
    read_node
    case $drained in elsewhere | unknown) return 0 ;; esac
    case $what in
    drain) drain_node DRAIN || : ;;
    down) drain_node DOWN || : ;;
    *)
        if [ "$drained" = here ] && [ "$undrain" = yes ] && [ "$unknowns" -eq 0 ]; then
            cause=${why#gpucheck:}
            case $never in
            *",${cause%%[!a-z0-9-]*},"*) tell "stays drained: undrain-never: $why" ;;
            *) scontrol update NodeName="$node" State=RESUME ;;
            esac
        elif [ "$drained" = here ]; then
            tell "stays drained: $unknowns checks are UNKNOWN, or the policy does not undrain: $why"
        fi
        if [ "$what" = comment ]; then
            comment_node "$reason"
        else
            case $comment in gpucheck:*) comment_node '' ;; esac
        fi
        ;;
    esac
}
