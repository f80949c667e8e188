"""What the tests of the stack commands share: a site of two hosts, and the words of its commands."""

import msgspec
import pytest
from click.testing import CliRunner

from gpucheck.cli.stack import COMMAND
from tests.stack.hosts import host


def run(*words):
    """The command in this process."""
    return CliRunner().invoke(COMMAND, [str(word) for word in words])


@pytest.fixture
def site(tmp_path):
    """A folder with a specification and the facts of two hosts."""
    (tmp_path / "stack.yml").write_text("driver: auto\n")
    facts = (host("ubuntu-22.04", "p100-pcie-x2", "lab-apt"), host("rocky-9", "h100-sxm5-x8", "lab-dnf"))
    for one in facts:
        (tmp_path / f"{one.host}.json").write_bytes(msgspec.json.encode(one))
    return tmp_path


def lock_words(site, *more, command="lock", target="-o"):
    """The words of a lock command for the site."""
    facts = [word for name in ("lab-apt", "lab-dnf") for word in ("--facts", site / f"{name}.json")]
    return [command, "--spec", site / "stack.yml", *facts, target, site / "stack.lock.yml", *more]
