"""The pinned base differs from its substitute: Ubuntu has a user "ubuntu" with id 1000, in groups, with a home.

Simulated on the substitute base, with a package manager that does nothing: the step that all images have in common.
"""

import subprocess

import pytest

from gpucheck.lab.images import ensure_base
from gpucheck.lab.system import engine
from tests.images.containers import ROOT
from tests.shared import END_S

pytestmark = pytest.mark.images

# As /etc/passwd and /etc/group of ubuntu:24.04 have them.
UBUNTU = "groupadd -g 1000 ubuntu && useradd -m -u 1000 -g 1000 -G adm,sudo,audio,video -s /bin/bash ubuntu"
NO_APT = "mkdir /fake && printf '#!/bin/sh\\n' >/fake/apt-get && chmod +x /fake/apt-get && export PATH=/fake:$PATH"
SHOW = (
    "getent passwd 1000; getent group 1000; echo; grep -rl ubuntu /etc/passwd* /etc/group* /etc/shadow* /etc/gshadow* "
    "/etc/subuid* /etc/subgid*; ls /home; ls -d /etc/*-"
)


def after_the_step(before):
    script = f"set -e; {before}; {NO_APT}; sh /common/system-layer python3; set +e; {SHOW}"
    words = ["docker", "run", "--rm", "--network", "none", "--volume", f"{ROOT / 'images/common'}:/common:ro"]
    done = subprocess.run(
        [*words, ensure_base(engine()), "sh", "-c", script], capture_output=True, text=True, check=False, timeout=END_S
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("before", [UBUNTU, "true"], ids=["ubuntu", "substitute"])
def test_user_1000_is_the_images_own_and_nothing_of_another_one_is_left(before):
    out, err = after_the_step(before)
    names, _, rest = out.partition("\n\n")

    assert names.splitlines() == ["any:x:1000:1000::/home/any:/bin/bash", "any:x:1000:"], err
    assert rest.split() == ["any"], err
