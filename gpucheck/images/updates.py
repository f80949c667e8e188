"""Updates of the base's packages that an image lacks, as its package manager lists them, and a changed base."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpucheck.images.context import Plan, build_time
from gpucheck.images.versions import LABEL
from gpucheck.lab.errors import LabError
from gpucheck.lab.model import fingerprint
from gpucheck.lab.system import failed, say

if TYPE_CHECKING:
    from docker import DockerClient

# Output of apt: "Inst libssl3 [3.0.15-1] (3.0.17-1 Debian-Security:12/stable-security [amd64])".
ROW = re.compile(r"^Inst (?P<name>\S+) \[(?P<old>[^\]]+)\] \((?P<new>\S+) (?P<origin>[^)\[]*)")
COMMAND = "apt-get -qq -o APT::Update::Error-Mode=any update && apt-get -qq --simulate upgrade"


@dataclass(frozen=True)
class Update:
    """One package with a newer version in the archive. origin: the archive, as apt names it."""

    name: str
    old: str
    new: str
    origin: str

    @property
    def security(self) -> bool:
        """Return whether it is from an archive of security fixes."""
        return "security" in self.origin.lower()

    def __str__(self) -> str:
        return f"{self.name} {self.old} -> {self.new} ({self.origin})"


def parse(output: str) -> list[Update]:
    """Return the updates in the output of `apt-get --simulate upgrade`, security fixes first, by name."""
    rows = [match.groupdict() for line in output.splitlines() if (match := ROW.match(line.strip()))]
    found = [Update(**{key: value.strip() for key, value in row.items()}) for row in rows]
    return sorted(found, key=lambda update: (not update.security, update.name))


def pending(client: "DockerClient", tag: str, environment: dict[str, str]) -> list[Update]:
    """Return updates that an image lacks, listed in a container. Raises LabError if the archive does not respond.

    environment: proxies of this host.
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


def counted(updates: Sequence[Update]) -> str:
    """Return ``2 package updates pending, 1 of them security fixes``."""
    noun = "update" if len(updates) == 1 else "updates"
    return f"{len(updates)} package {noun} pending, {sum(one.security for one in updates)} of them security fixes"


def state(updates: list[Update], before: str) -> str:
    """Return the name of an archive's state, a hash of the previous state and the updates."""
    return fingerprint([before, *(f"{update.name}={update.new}" for update in updates)]) if updates else before


def moved(client: "DockerClient", pinned: str) -> str | None:
    """Return the current digest of a pinned base's tag in the registry, None if it is the pinned one.

    Raises LabError if the registry does not respond.
    """
    import docker.errors

    name, _, digest = pinned.partition("@")
    try:
        today = str(client.images.get_registry_data(name).id)
    except (docker.errors.DockerException, OSError) as error:
        raise LabError(failed(f"querying the registry for {name}", "it did not respond", str(error), "")) from error
    return None if today == digest else today


def state_of_archive(client: "DockerClient", plan: Plan, before: str, environment: dict[str, str]) -> str:
    """Print the updates that the image lacks, and return the archive's state. Raises LabError without a response.

    before: the state that the image was built for. environment: proxies of this host.
    """
    if not plan.stand_in and "@" in plan.base_image:
        today = moved(client, plan.base_image)
        if today:
            say(
                f"the base {plan.base_image.partition('@')[0]} changed: its digest is now {today}. Its package updates "
                "are installed below; to build on it, put the digest into images/versions.yml"
            )
    if not client.images.list(name=plan.tag):
        # No previous image: this build installs the archive's current packages, whatever is in the builder's cache.
        return f"first-{build_time():%Y%m%d%H%M%S}"
    found = pending(client, plan.tag, environment)
    say(f"{plan.tag}: {counted(found)}")
    for update in found:
        say(f"  {update}")
    return state(found, before)
