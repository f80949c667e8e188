"""Client certificates of mirrors in stack.yml: paths on the hosts, in the plan's repositories."""

import pytest

from gpucheck.stack.spec import SpecError, parse_spec
from tests.stack.asked import planned

GIVEN = """repositories:
  nvidia-cuda:
    url: https://mirror.example/{distro}/{arch}/
    client_certificate: /etc/gpucheck/mirrors/site.pem
    client_key: /etc/gpucheck/mirrors/site.key
"""


@pytest.mark.parametrize("system", ["ubuntu-24.04", "rocky-9"])
def test_the_plans_repository_names_the_files(system):
    mirror, toolkit = planned(GIVEN, system).repositories

    assert mirror["client_certificate"] == "/etc/gpucheck/mirrors/site.pem"
    assert mirror["client_key"] == "/etc/gpucheck/mirrors/site.key"
    assert "client_key" not in toolkit


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GIVEN.replace("    client_key: /etc/gpucheck/mirrors/site.key\n", ""), "client_key is missing"),
        (GIVEN.replace("/etc/gpucheck/mirrors/site.key", "site.key"), "'site.key' is not an absolute path"),
        (GIVEN.replace("/etc/gpucheck/mirrors/site.key", '"/a; reboot"'), "is not an absolute path"),
        (GIVEN.replace("https:", "http:"), "https"),
    ],
)
def test_mistakes_are_refused_with_their_line(text, words):
    with pytest.raises(SpecError, match=words) as refused:
        parse_spec(text, "stack.yml")

    assert "stack.yml:" in str(refused.value)
