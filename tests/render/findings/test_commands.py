"""A command in a remedy can be pasted: nothing of the sentence sticks to it, and nothing of the sentence is lost."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.cli import cli
from gpucheck.render.findings.commands import GPUCHECK, parts


@pytest.mark.parametrize(
    ("advice", "commands"),
    [
        ("dmesg | grep -e Xid; reset the GPU", ["dmesg | grep -e Xid"]),
        ("reseat the card, then: gpucheck verify --only pcie-link", ["gpucheck verify --only pcie-link"]),
        ("gpucheck verify --only driver says why", ["gpucheck verify --only driver"]),
        ("read the log (dmesg | grep -i xid), then reboot", ["dmesg | grep -i xid"]),
        ("nvidia-smi nvlink -s and -e; reset the GPUs", ["nvidia-smi nvlink -s"]),
        ("see nvidia-smi c2c -s, then dmesg", ["nvidia-smi c2c -s"]),
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
        ("Install it where gpucheck runs: pip install 'torch[x]==2.9'", ["pip install 'torch[x]==2.9'"]),
        ("in a gpucheck checkout, or what gpucheck needs itself", []),
        (
            "NVML works, nvidia-smi works too; nvidia-smi topo -m matrix",
            ["nvidia-smi", "nvidia-smi topo -m"],
        ),
        ("the nvidia-ctk configures it; lspci spelled out; modprobe reads it", []),
        ("nvidia-smi -q page of a log; nvidia-smi -q -d POWER", ["nvidia-smi -q", "nvidia-smi -q -d POWER"]),
        ("gpucheck collectives measure it, gpucheck stack check too", ["gpucheck collectives", "gpucheck stack check"]),
        (
            "gpucheck explain acs-redirect; gpucheck record -o FILE",
            ["gpucheck explain acs-redirect", "gpucheck record -o FILE"],
        ),
        ("gpucheck smoke --precision fp32 once more", ["gpucheck smoke --precision fp32"]),
        ("python3 -m json.tool report.json; python -c 'x'.", ["python3 -m json.tool report.json", "python -c 'x'"]),
        (
            "nvidia-ctk cdi generate --output=x && systemctl restart docker",
            ["nvidia-ctk cdi generate --output=x && systemctl restart docker"],
        ),
        ("Reset the GPU: nvidia-smi --gpu-reset -i 0000:4c:00.0", ["nvidia-smi --gpu-reset -i 0000:4c:00.0"]),
        (
            "systemctl restart nvidia-fabricmanager and look; the systemctl unit",
            ["systemctl restart nvidia-fabricmanager"],
        ),
        ("", []),
    ],
)
def test_commands_are_told_from_the_sentence(advice, commands):
    assert [part.text for part in parts(advice) if part.is_command] == commands


def test_commands_of_gpucheck_are_those_of_its_command_line():
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}

    assert {
        name: tuple(sorted(command.commands)) if isinstance(command, click.Group) else ()
        for name, command in found.items()
    } == GPUCHECK


@given(st.text() | st.lists(st.sampled_from(["dmesg", "gpucheck", "and", "-x", "'a b'", ";", ",", "."])).map(" ".join))
def test_joined_the_parts_are_the_advice(advice):
    assert "".join(part.text for part in parts(advice)) == advice
