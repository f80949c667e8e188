"""Updates of the base's packages that an image lacks, as its own package manager lists them, and a base that moved."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpucheck.images.context import Plan, build_time
from gpucheck.images.versions import LABEL
from gpucheck.lab.errors import LabError
from gpucheck.lab.model import fingerprint
from gpucheck.lab.system import failed, say

if TYPE_CHECKING:
    from docker import DockerClient

# apt's own words: "Inst libssl3 [3.0.15-1] (3.0.17-1 Debian-Security:12/stable-security [amd64])".
ROW = re.compile(r"^Inst (?P<name>\S+) \[(?P<old>[^\]]+)\] \((?P<new>\S+) (?P<origin>[^)\[]*)")
COMMAND = "apt-get -qq -o APT::Update::Error-Mode=any update && apt-get -qq --simulate upgrade"


@dataclass(frozen=True)
class Update:
    """One package with a newer version in the archive. origin: which archive, as apt names it."""

    name: str
    old: str
    new: str
    origin: str

    @property
    def security(self) -> bool:
        """From an archive of security fixes."""
        return "security" in self.origin.lower()

    def __str__(self) -> str:
        return f"{self.name} {self.old} -> {self.new} ({self.origin})"


def parse(output: str) -> list[Update]:
    """The updates in the output of `apt-get --simulate upgrade`, security fixes first, by name."""
    rows = [match.groupdict() for line in output.splitlines() if (match := ROW.match(line.strip()))]
    found = [Update(**{key: value.strip() for key, value in row.items()}) for row in rows]
    return sorted(found, key=lambda update: (not update.security, update.name))


def pending(client: "DockerClient", tag: str, environment: dict[str, str]) -> list[Update]:
    """Updates that an image lacks, asked in a container of it. Raises LabError where the archive does not answer.

    environment: proxies of this machine.
    """
    import docker.errors

    try:
        output = client.containers.run(
            tag,
            ["sh", "-c", COMMAND],
            user="0",
            remove=True,
            environment={**environment, "DEBIAN_FRONTEND": "noninteractive", "NVIDIA_VISIBLE_DEVICES": "void"},
            labels={LABEL: "updates"},
            stderr=True,
        )
    except docker.errors.ContainerError as error:
        words = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else str(error.stderr or "")
        hint = (
            "whether updates are pending is unknown: check that a container reaches the package archive (docker run "
            "--user 0 IMAGE apt-get update), then run this again"
        )
        raise LabError(failed(f"listing the updates of {tag}", "its package archive", words, hint)) from error
    return parse(output.decode(errors="replace"))


def state(updates: list[Update], before: str) -> str:
    """The name of an archive's state: other updates on another state before are another one."""
    return fingerprint([before, *(f"{update.name}={update.new}" for update in updates)]) if updates else before


def moved(client: "DockerClient", pinned: str) -> str | None:
    """The digest that the registry has today for the tag of a pinned base, None where it is the pinned one.

    Raises LabError where the registry does not answer.
    """
    import docker.errors

    name, _, digest = pinned.partition("@")
    try:
        today = str(client.images.get_registry_data(name).id)
    except (docker.errors.DockerException, OSError) as error:
        raise LabError(failed(f"asking the registry for {name}", "it did not answer", str(error), "")) from error
    return None if today == digest else today


def state_of_archive(client: "DockerClient", plan: Plan, before: str, environment: dict[str, str]) -> str:
    """List what the plan's image lacks, and name the archive's state. Raises LabError where no archive answers.

    before: the state that the image was built for. environment: proxies of this machine.
    """
    if not plan.stand_in and "@" in plan.base_image:
        today = moved(client, plan.base_image)
        if today:
            say(
                f"the base {plan.base_image.partition('@')[0]} moved: its digest is {today} today. Its package updates "
                "are installed below; to build on it, put the digest into images/versions.yml"
            )
    if not client.images.list(name=plan.tag):
        # Nothing to ask: whatever the builder's cache holds, this build installs what the archive has today.
        return f"first-{build_time():%Y%m%d%H%M%S}"
    found = pending(client, plan.tag, environment)
    say(f"{plan.tag}: {len(found)} package updates pending, {sum(u.security for u in found)} of them security fixes")
    for update in found:
        say(f"  {update}")
    return state(found, before)
