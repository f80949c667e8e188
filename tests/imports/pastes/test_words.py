"""Lines that decide: errors in other languages, remarks, screens of other viewers, of NCCL and perftest about cards.

The cause of each is a row of gpucheck/knowledge/messages.

tests/data/words.tsv: key of the message, source, line. Sources are repository and issue; a number is a file of a public
code index; texts of programs that translate are those of the GNU C library and of bash (po/de, fr, zh_CN, ja).
"""

from pathlib import Path

import pytest

from gpucheck import imports
from tests.imports.pastes.reading import diagnosed

TABLE = Path(__file__).parents[2] / "data" / "words.tsv"
WORDS = [tuple(row.split("\t", 2)) for row in TABLE.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("key", "source", "line"), WORDS)
def test_a_line_that_decides_is_understood(key, source, line):
    parts = imports.read_all(line.encode(), source).parts

    assert [message.key for part in parts for message in part.messages] == [key]


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_P2P_DISABLE=1 does not work either",
        "it still hangs with NCCL_P2P_DISABLE=1",
        "NCCL_P2P_DISABLE=1 didn't help",
        "Does it work with NCCL_P2P_DISABLE=1?",
        "NCCL_P2P_DISABLE=1 も動かない",
        "export NCCL_P2P_DISABLE=1",
        "NCCL_P2P_DISABLE=1 python /home/me/work/train.py --help --mode=works",
        "$ NCCL_P2P_DISABLE=1 ./fix.sh",
        "modprobe nvidia",
        "GPU: the number of the job",
        "Tesla, Nikola, 1856",
        "this works: nvidia-smi",
        "I saw NCCL WARN in my log",
        "the NCCL INFO lines, NCCL version?",
    ],
)
def test_a_line_that_decides_nothing_is_no_finding(line):
    with pytest.raises(imports.ImportProblem):
        imports.read_all(line.encode(), "issue")


@pytest.mark.parametrize(
    ("parameters", "iommu"),
    [
        ("BOOT_IMAGE=/vmlinuz-6.8.0 root=UUID=1 ro intel_iommu=on quiet", "translating"),
        ("BOOT_IMAGE=/vmlinuz-6.8.0 root=UUID=1 ro intel_iommu=on iommu=pt", "identity"),
        ('GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=off"', "off"),
        ('GRUB_CMDLINE_LINUX_DEFAULT="quiet intel_iommu=off amd_iommu=off"', "off"),
        # The CPU may be of the other vendor, which ignores it.
        ('GRUB_CMDLINE_LINUX_DEFAULT="quiet intel_iommu=off"', None),
    ],
)
def test_kernel_parameters_set_the_iommu(parameters, iommu):
    assert diagnosed(parameters).observations.host.iommu == iommu


def test_letters_of_a_picture_are_digits():
    text = "\tGPUO\tGPUl\tCPU Affinity\tNUMA Affinity\nGPUO\tX\tPHB\tO-23\t0\nGPUl\tPHB\tX\tO-23\t0\n"

    (part,) = imports.read_all(text.encode(), "picture").parts

    assert part.topology.matrix == (("X", "PHB"), ("PHB", "X"))
    assert [gpu.cpu_affinity for gpu in part.topology.gpus] == ["0-23", "0-23"]
