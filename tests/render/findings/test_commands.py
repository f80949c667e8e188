"""A command in a remedy can be pasted: nothing of the sentence sticks to it, and nothing of the sentence is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.render.findings.commands import parts


@pytest.mark.parametrize(
    ("advice", "commands"),
    [
        ("dmesg | grep -e Xid; reset the GPU", ["dmesg | grep -e Xid"]),
        ("reseat the card, then: gpucheck verify --only pcie-link", ["gpucheck verify --only pcie-link"]),
        ("gpucheck verify --only driver says why", ["gpucheck verify --only driver"]),
        ("read the log (dmesg | grep -i xid), then reboot", ["dmesg | grep -i xid"]),
        ("nvidia-smi nvlink -s and -e; reset the GPUs", ["nvidia-smi nvlink -s"]),
        ("compare gpucheck topo with nvidia-smi topo -m and reboot", ["gpucheck topo", "nvidia-smi topo -m"]),
        ("systemctl status x; journalctl -u x; start it", ["systemctl status x", "journalctl -u x"]),
        ("python -c 'import torch, sys' in the same environment", ["python -c 'import torch, sys'"]),
        ("sudo gpucheck verify --only acs", ["sudo gpucheck verify --only acs"]),
        ("record it with this gpucheck: gpucheck record -o FILE", ["gpucheck record -o FILE"]),
        ("try: gpucheck bandwidth --simulate x.", ["gpucheck bandwidth --simulate x"]),
        ("make provision INVENTORY=... records it", ["make provision INVENTORY=..."]),
        ("make sure that it is a supported cat", []),
        ("remove the file /usr/bin/nvidia-smi by hand", []),
        ("the same gpucheck, or a newer one", []),
        ("", []),
    ],
)
def test_commands_are_told_from_the_sentence(advice, commands):
    assert [part.text for part in parts(advice) if part.is_command] == commands


@given(st.text() | st.lists(st.sampled_from(["dmesg", "gpucheck", "and", "-x", "'a b'", ";", ",", "."])).map(" ".join))
def test_joined_the_parts_are_the_advice(advice):
    assert "".join(part.text for part in parts(advice)) == advice
