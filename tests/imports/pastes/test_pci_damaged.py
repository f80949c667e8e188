"""Bug reports composed of several outputs, and damaged ones: no traceback, and each part is read."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck import imports
from gpucheck.imports import ImportProblem, read_all
from gpucheck.run.pastes import diagnosis
from tests.imports.pastes.pci_samples import H100, RAW


def composed_report():
    """The form of nvidia-bug-report.log: parts between rules, each with a heading. Composed of other samples."""
    rule = "____________________________________________"
    parts = (
        "Start of NVIDIA bug report log file.  Please include this file, along\nnvidia-bug-report.sh Version: 34275561",
        "*** /proc/driver/nvidia/./gpus/0000:19:00.0/information\nModel: \t\t NVIDIA H100",
        '/usr/bin/lspci -d "10de:*" -v -xxx\n\n' + H100.split("\n\n")[4],
        "/usr/bin/lspci -t\n\n" + RAW["lspci-tree-two-roots"],
        "/usr/bin/lspci -nn\n\n" + RAW["lspci-nnk-gtx1050ti"],
        "*** /var/log/fabricmanager.log\n" + RAW["fabric-manager-log-multicast"],
        "*** /var/log/nvidia-installer.log\n" + RAW["module-error-installer-nouveau"],
        "/usr/bin/dmesg\n[    1.0] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\n"
        + "5iNCuKdKVCxh6kkd02lpy5d/VFEL\n" * 999,
    )
    return f"\n{rule}\n\n".join(parts)


def test_a_composed_bug_report_is_read_part_by_part():
    reading = read_all(composed_report().encode(), "nvidia-bug-report.log")
    kinds = {one.kind for part in reading.parts for one in part.ranges}
    assert {"lspci", "fabric-manager-log", "module-error", "kernel-log"} <= kinds
    diagnosis([reading], sources=("nvidia-bug-report.log",))


@settings(max_examples=100)
@given(st.sampled_from(sorted(RAW.values())), st.randoms(use_true_random=False), st.binary(max_size=40))
def test_damaged_pastes_raise_nothing_else(raw, rng, noise):
    lines = raw.split("\n")
    for _ in range(rng.randint(1, 10)):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        what = rng.randrange(4)
        if what == 0 and len(lines) > 1:
            del lines[at]
        elif what == 1:
            lines[at], lines[other % len(lines)] = lines[other % len(lines)], lines[at]
        elif what == 2:
            lines[at] = lines[at][: rng.randint(0, len(lines[at]))]
        else:
            lines[at] += noise.decode("latin-1").replace("\0", "")
    try:
        found = imports.read_all("\n".join(lines).encode(), "paste")
    except ImportProblem:
        return
    diagnosis([found], sources=("paste",))
