#!/bin/sh
# gres.sh CONF PLUGINS [ROOT]: what gres.conf of this host has to say, from the driver and the kernel. Changes nothing.
#
# CONF: slurm.conf of the controller, which a node with files of its own has at the same path. PLUGINS: Slurm's plugins.
# Prints lines of a word and its value:
#   place local|shared|served   where gres.conf is: a file of this host, of all hosts, or sent by the controller
#   nvml yes|no                 whether this slurmd can AutoDetect=nvml
#   cgroup v1|v2                what the kernel has
#   cores N                     cores of the host, 0 if unknown
#   gpus N                      GPUs that the driver has; with MIG, instances
#   mig yes                     a GPU is divided
#   gres LINE, old LINE         of gres.conf as it should be, as it is
set -u
LC_ALL=C
export LC_ALL
conf=$1 plugins=$2 root=${3:-}
folder=${conf%/*}

place=local
if [ -e "$root/run/slurm/conf/slurm.conf" ] && { ! [ -e "$conf" ] || grep -qsz '^--conf-serve[r]' "$root"/proc/[0-9]*/cmdline; }; then
    place=served folder=$root/run/slurm/conf
elif ! [ -e "$conf" ]; then
    place=shared
else
    # A file system that is not known to be local counts as shared.
    for path in "$folder" "$folder/gres.conf"; do
        [ -e "$path" ] || continue
        case $(stat -f -c %T "$path") in
        ext2/ext3 | xfs | btrfs | zfs | tmpfs | overlayfs | f2fs | ramfs | squashfs) ;;
        *) place=shared ;;
        esac
    done
fi
echo "place $place"
[ -e "$plugins/gpu_nvml.so" ] && echo "nvml yes" || echo "nvml no"
[ -e "$root/sys/fs/cgroup/cgroup.controllers" ] && echo "cgroup v2" || echo "cgroup v1"
[ ! -r "$folder/gres.conf" ] || sed -n 's/^[[:space:]]*\([^#[:space:]]\)/old \1/p; 1s/^# Written by gpucheck/old &/p' "$folder/gres.conf"

# "cpu CORE NODE CPU" of each processor: Slurm counts cores in the order of sockets, NUMA nodes and first processors.
# "gpu MINOR CPU-LIST" of each GPU.
{
    for cpu in "$root"/sys/devices/system/cpu/cpu[0-9]*; do
        siblings=$(cat "$cpu/topology/thread_siblings_list" 2>/dev/null) || continue
        package=$(cat "$cpu/topology/physical_package_id" 2>/dev/null) || continue
        for node in "$cpu"/node[0-9]*; do break; done
        echo "cpu ${siblings%%[,-]*} $package ${node##*node} ${cpu##*cpu}"
    done
    for file in "$root"/proc/driver/nvidia/gpus/*/information; do
        [ -r "$file" ] || continue
        address=${file%/information}
        minor=$(sed -n 's/^Device Minor:[[:space:]]*\([0-9]*\).*/\1/p' "$file")
        [ -z "$minor" ] || echo "gpu $minor $(cat "$root/sys/bus/pci/devices/${address##*/}/local_cpulist" 2>/dev/null)"
    done | sort -n -k 2 | grep . || for file in "$root"/dev/nvidia[0-9]*; do
        [ ! -e "$file" ] || echo "gpu ${file##*/nvidia}"
    done
    for file in "$root"/proc/driver/nvidia/capabilities/gpu[0-9]*/mig/gi[0-9]*/ci[0-9]*/access; do
        [ -r "$file" ] || continue
        rest=${file#*/capabilities/gpu}
        echo "mig ${rest%%/*} $(sed -n 's/^DeviceFileMinor: *//p' "${file%/ci*}/access") $(sed -n 's/^DeviceFileMinor: *//p' "$file")"
    done
} | awk '
    $1 == "cpu" && $2 == $5 { core[$5] = $3 " " $4; first[$3] = $5 < first[$3] || first[$3] == "" ? $5 : first[$3]
        near = $3 " " $4; begin[near] = $5 < begin[near] || begin[near] == "" ? $5 : begin[near]; count++ }
    $1 == "cpu" { all++ }
    $1 == "gpu" { minor[gpus++] = $2; list[$2] = $3 }
    $1 == "mig" { instances[$2] = instances[$2] $3 " " $4 "\n"; divided = 1 }
    function cores(text, parts, ends, n, m, i, cpu, marked, last, out) {
        n = split(text, parts, ",")
        for (i = 1; i <= n; i++) {
            m = split(parts[i], ends, "-")
            for (cpu = ends[1] + 0; cpu <= ends[m] + 0; cpu++) if (cpu in rank) marked[rank[cpu]] = 1
        }
        for (i = 0; i < count; i++) {
            if (!(i in marked)) continue
            for (last = i; (last + 1) in marked; last++);
            out = out (out == "" ? "" : ",") i (last > i ? "-" last : "")
            i = last
        }
        return out == "0-" (count - 1) ? "" : out
    }
    END {
        # In the order of (socket, NUMA node, first processor), each by its first processor.
        for (cpu in core) order[++n] = cpu + 0
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && before(order[j], order[j - 1]); j--) { t = order[j]; order[j] = order[j - 1]; order[j - 1] = t }
        for (i = 1; i <= n; i++) rank[order[i]] = i - 1
        print "cores", count + 0
        for (i = 0; i < gpus; i++) {
            at = cores(list[minor[i]])
            tail = at == "" ? "" : " Cores=" at
            if (minor[i] in instances) {
                m = split(instances[minor[i]], rows, "\n")
                for (j = 1; j < m; j++) {
                    split(rows[j], caps, " ")
                    print "gres Name=gpu MultipleFiles=/dev/nvidia" minor[i] ",/dev/nvidia-caps/nvidia-cap" caps[1] ",/dev/nvidia-caps/nvidia-cap" caps[2] tail
                    total++
                }
                continue
            }
            for (last = i; last + 1 < gpus && minor[last + 1] == minor[last] + 1 && cores(list[minor[last + 1]]) == at && !(minor[last + 1] in instances); last++);
            print "gres Name=gpu File=/dev/nvidia" (last > i ? "[" minor[i] "-" minor[last] "]" : minor[i]) tail
            total += last - i + 1
            i = last
        }
        print "gpus", total + 0
        if (divided) print "mig yes"
    }
    function before(a, b, x, y) {
        split(core[a], x, " ")
        split(core[b], y, " ")
        if (x[1] != y[1]) return first[x[1]] < first[y[1]]
        if (x[2] != y[2]) return begin[core[a]] < begin[core[b]]
        return a < b
    }'
