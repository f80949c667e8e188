"""The provisioned lab that the end-to-end tests share: the README's commands, and a look into its hosts.

GPUCHECK_TEST_LAB and GPUCHECK_TEST_SUBNET name a lab that is already up; it is used as it is, and left standing.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
KEPT = os.environ.get("GPUCHECK_TEST_LAB")
LAB = KEPT or "gpucheck-e2e"
SUBNET = os.environ.get("GPUCHECK_TEST_SUBNET", "10.213.43.0/24")
HOSTS = ("lab-apt", "lab-dnf")
INVENTORY = ROOT / ".lab" / LAB / "inventory.yml"


class Run:
    """A finished make: its exit status and its words."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status = done.returncode
        self.text = done.stdout + done.stderr
        self.plain = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", self.text).split())

    def recap(self, host: str) -> dict[str, int]:
        """Ansible's last word about a host: ok, changed, unreachable, failed, ..."""
        line = re.findall(rf"^{host}\s+: (.*)$", re.sub(r"\x1b\[[0-9;]*m", "", self.text), re.MULTILINE)[-1]
        return {word.split("=")[0]: int(word.split("=")[1]) for word in line.split()}


def make(target: str, reports: Path, *, inventory: Path | None = None, args: str = "", **more: str) -> Run:
    """A make target. args: for ansible-playbook; more: make's variables."""
    return finished(start(target, reports, inventory=inventory, args=args, **more))


def start(
    target: str, reports: Path, *, inventory: Path | None = None, args: str = "", **more: str
) -> "subprocess.Popen[str]":
    """The same, still running."""
    words = ["make", target, f"LAB={LAB}", f"REPORTS={reports}", f"ARGS=-e build_dir={reports.parent}/build {args}"]
    words += [f"INVENTORY={inventory}"] if inventory else []
    words += [f"{name}={value}" for name, value in more.items()]
    environment = {**os.environ, "GPUCHECK_LAB_SUBNET": SUBNET}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=ROOT, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def finished(running: "subprocess.Popen[str]") -> Run:
    """What it said, once it has ended."""
    output, _ = running.communicate()
    return Run(subprocess.CompletedProcess(running.args, running.returncode, output, ""))


def on_host(host: str, *command: str) -> str:
    words = ["docker", "exec", f"{LAB}-{host.removeprefix('lab-')}", *command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def boots(host: str) -> int:
    return int(on_host(host, "cat", "/var/lib/gpucheck-lab/boots"))


def report(reports: Path, host: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((reports / f"{host}.json").read_text())
    return answer


def unproven(reports: Path) -> str:
    """Each finding that did not pass, whole: the output shows the first of them and their number."""
    findings = [
        (path.stem, found)
        for path in sorted(reports.glob("lab-*.json"))
        for found in json.loads(path.read_text())["findings"]
    ]
    return "\n".join(
        f"{host}: {json.dumps(found)}" for host, found in findings if found["verdict"] not in ("pass", "skip")
    )


def container(host: str) -> str:
    """The container of a host."""
    return f"{LAB}-{host.removeprefix('lab-')}"


def docker(*words: str) -> str:
    """A docker command."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout.strip()


def with_spec(reports: Path, target: str = "provision", **more: str) -> Run:
    """A target without `lab up`, which would write the lab's own stack.yml again."""
    return make(target, reports, inventory=INVENTORY, **more)


def from_bad_copies(spec: Path) -> None:
    """Write the mirror's `bad` copies into stack.yml: they are signed with another key than the one that is stated."""
    text = yaml.safe_load(spec.read_text())
    for repository in text["repositories"].values():
        repository["url"] = re.sub(r"(http://[^/]+)/", r"\1/bad/", repository["url"])
    spec.write_text(yaml.safe_dump(text))


@contextmanager
def specified(**values: Any) -> Iterator[Path]:
    """The lab's stack.yml with these values; the lab's own comes back at the end."""
    path = INVENTORY.with_name("stack.yml")
    kept = path.read_text()
    path.write_text(yaml.safe_dump({**yaml.safe_load(kept), **values}))
    try:
        yield path
    finally:
        path.write_text(kept)


def until(true: Callable[[], bool], what: str, seconds: float = 600) -> None:
    """Wait for something on a host to be so; on a busy machine that takes minutes."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.1)


def installed(host: str) -> set[str]:
    """``name version`` of every installed package."""
    return {row.strip() for row in on_host(host, "sh", "-c", LIST[host]).splitlines()}


LIST = {
    "lab-apt": "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n' | grep '^.i' | cut -d' ' -f2-",
    "lab-dnf": "rpm -qa --qf '%{NAME} %{VERSION}-%{RELEASE}\\n' | grep -v ^gpg-pubkey",
}


def held(host: str) -> set[str]:
    """What may not move by itself."""
    words = {"lab-apt": ("apt-mark", "showhold"), "lab-dnf": ("cat", "/etc/dnf/plugins/versionlock.list")}
    return set(on_host(host, *words[host]).split())


def driver_versions(host: str) -> set[str]:
    """The versions of the driver's packages."""
    return {row.split()[1].split("-")[0] for row in installed(host) if re.match(r"(lib)?nvidia-(?!container)", row)}


def provision_json(reports: Path) -> dict[str, Any]:
    """What the run did to each host."""
    answer: dict[str, Any] = json.loads((reports / "provision.json").read_text())
    return answer
