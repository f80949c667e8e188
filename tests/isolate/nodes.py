"""Nodes for a search: network namespaces on one bridge, an SSH server in each, every link shaped to one rate.

The bridge has a namespace of its own, because firewall rules of this host (Docker's) would drop what it forwards.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RATE = "200mbit"
NETWORK = "10.231.77"
SHAPE = ("burst", "64kb", "latency", "100ms")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def shape(name: str, rate: str) -> None:
    """Shape what a node sends."""
    run("ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, *SHAPE)


@contextmanager
def nodes(folder: Path, count: int, prefix: str = "gpc") -> Iterator[Path]:
    """Yield an Ansible inventory of running nodes ``gpc0``, ``gpc1``, ...; nothing is left of them."""
    switch, outside, servers = f"{prefix}-switch", f"{prefix}-out", []
    key, names = folder / "key", [f"{prefix}{at}" for at in range(count)]
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    folder.chmod(0o755)
    try:
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", outside, "netns", switch)
        run("ip", "addr", "add", f"{NETWORK}.254/24", "dev", outside)
        run("ip", "link", "set", outside, "up")
        run("ip", "-n", switch, "link", "set", outside, "master", "bridge", "up")
        for at, name in enumerate(names):
            run("ip", "netns", "add", name)
            run("ip", "-n", switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "-n", switch, "link", "set", name, "master", "bridge", "up")
            for words in (("addr", "add", f"{NETWORK}.{at + 1}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
                run("ip", "-n", name, *words)
            run("ip", "-n", name, "link", "set", "lo", "up")
            shape(name, RATE)
            servers.append(_serve(folder, name, f"{NETWORK}.{at + 1}", key))
        inventory = folder / "inventory.yml"
        hosts = "".join(f"        {name}: {{ansible_host: {NETWORK}.{at + 1}}}\n" for at, name in enumerate(names))
        checks = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        inventory.write_text(
            f"all:\n  vars:\n    ansible_ssh_private_key_file: {key}\n    ansible_user: root\n"
            f"    ansible_ssh_common_args: {checks}\n  children:\n    gpu:\n      hosts:\n{hosts}"
        )
        yield inventory
    finally:
        for server in servers:
            server.kill()
        for name in (*names, switch):
            with suppress(subprocess.CalledProcessError):
                for pid in run("ip", "netns", "pids", name).split():
                    run("kill", "-9", pid)
            with suppress(subprocess.CalledProcessError):
                run("ip", "netns", "del", name)
        with suppress(subprocess.CalledProcessError):
            run("ip", "link", "del", outside)


def _serve(folder: Path, name: str, address: str, key: Path) -> "subprocess.Popen[bytes]":
    host_key = folder / f"{name}.host"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host_key))
    options = {
        "HostKey": str(host_key), "AuthorizedKeysFile": f"{key}.pub", "StrictModes": "no", "UsePAM": "no",
        "ListenAddress": address, "PidFile": "none", "PermitRootLogin": "yes", "MaxStartups": "100",
    }  # fmt: skip
    words = [word for option, value in options.items() for word in ("-o", f"{option}={value}")]
    Path("/run/sshd").mkdir(exist_ok=True)
    return subprocess.Popen(
        ["ip", "netns", "exec", name, "/usr/sbin/sshd", "-D", "-f", "/dev/null", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
