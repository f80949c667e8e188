"""What a site brings by itself: sources that it manages, and a key.

Package managers, systemd and update-grub are real on the hosts, which appear as bare metal (SIMULATED, see
bare_metal.py). Stand-ins: the firmware, mokutil, and DKMS, whose signature is the hash of a certificate. Not proven
here: that a real firmware boots, and that a real kernel checks a signature.

Every test begins with bare hosts and ends by showing that they are again as it found them.
"""

import pytest

from gpucheck.host.readers.kernels import SECURE_BOOT
from tests.lab.bare_metal import (
    HOSTS,
    SUBNET,
    changes_nothing,
    deprovisioned,
    is_there,
    loaded,
    on_host,
    packages,
    provision,
    reboot,
    refused,
    states,
)

pytestmark = pytest.mark.more_labs

IP = f"{SUBNET.rpartition('.')[0]}.10"
MIRROR = f"http://{IP}/compute/cuda/repos"
# NVIDIA's packages in sources of the site's own, as a subscription manager writes them.
SUBSCRIBE = {
    "lab-apt": f"""
echo 'deb [signed-by=/etc/apt/keyrings/gpucheck-lab-os.asc] {MIRROR}/ubuntu2204/x86_64/ /' \\
    >/etc/apt/sources.list.d/subscribed.list""",
    "lab-dnf": f"""
printf '%s\\n' '[subscribed]' 'name=Subscribed (SIMULATED)' baseurl={MIRROR}/rhel9/x86_64/ enabled=1 gpgcheck=1 \\
    gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-gpucheck-lab-os >/etc/yum.repos.d/subscribed.repo""",
}
SUBSCRIBED = {"lab-apt": "/etc/apt/sources.list.d/subscribed.list", "lab-dnf": "/etc/yum.repos.d/subscribed.repo"}
SOURCES = "cat /etc/apt/sources.list.d/* /etc/yum.repos.d/* 2>/dev/null || :"


def test_managed_sources_must_hold_the_packages_and_no_other_source_is_written(bare_metal, reports):
    said = refused(reports, repositories="managed")
    assert said.count("repositories: managed is set in stack.yml, but no package source of this host offers") >= 2
    assert "libnvidia-compute-580=580.178.04-1ubuntu1 (no version is offered)" in said
    assert "module stream nvidia-driver:580-open" in said
    assert states() == bare_metal

    for host in HOSTS:
        on_host(host, SUBSCRIBE[host])
    subscribed = states()
    sources = {host: on_host(host, SOURCES) for host in HOSTS}
    provision(reports, repositories="managed")

    for host in HOSTS:
        assert loaded(host, "nvidia")
        assert on_host(host, SOURCES) == sources[host]
    changes_nothing(reports)

    # From the next run on the sources are again those of the plan: the site's file of the same source is taken over.
    provision(reports)
    assert not any(is_there(host, SUBSCRIBED[host]) for host in HOSTS)
    # And back: what was written goes, and no package moves.
    installed = {host: packages(host) for host in HOSTS}
    for host in HOSTS:
        on_host(host, SUBSCRIBE[host])
    provision(reports, repositories="managed")
    assert {host: on_host(host, SOURCES) for host in HOSTS} == sources
    assert {host: packages(host) for host in HOSTS} == installed

    deprovisioned(reports)
    assert states() == subscribed
    for host in HOSTS:
        on_host(host, f"rm {SUBSCRIBED[host]}")


KEY = {"key": "/etc/site/mok.key", "certificate": "/etc/site/mok.der"}
SETTINGS = "/etc/dkms/framework.conf.d/gpucheck-mok.conf"
VARIABLE = f"/usr/share/gpucheck-lab/machine/root/{SECURE_BOOT}"


def secure_boot(on):
    """Switch it in the firmware's setup, which takes a boot."""
    for host in HOSTS:
        on_host(host, f"printf '\\006\\000\\000\\000\\00{int(on)}' >{VARIABLE}")
        reboot(host)


def test_with_secure_boot_the_driver_comes_once_the_sites_key_is_enrolled_and_signs_it(bare_metal, reports):
    secure_boot(True)
    try:
        said = refused(reports)
        assert said.count("Secure Boot is on, and DKMS would sign the module with a key that is not enrolled") >= 2
        said = refused(reports, mok=KEY)
        assert said.count(f"mok in stack.yml names {KEY['key']} and {KEY['certificate']}, which does not exist") >= 2
        for host in HOSTS:
            on_host(host, f"mkdir /etc/site; echo key >{KEY['key']}; echo {host} >{KEY['certificate']}")
            on_host(host, f"mokutil --import {KEY['certificate']}")
        said = refused(reports, mok=KEY)
        assert said.count("its enrollment waits for a confirmation on the console at the next boot") >= 2
        assert states() == bare_metal

        for host in HOSTS:
            reboot(host)
        provision(reports, mok=KEY)

        for host in HOSTS:
            assert loaded(host, "nvidia")
            signer = on_host(host, f"sha256sum {KEY['certificate']}").split()[0]
            assert on_host(host, "modinfo -F sig_key nvidia") == signer
            assert on_host(host, f"cat {SETTINGS}").splitlines() == [
                f"mok_signing_key={KEY['key']}",
                f"mok_certificate={KEY['certificate']}",
            ]
        changes_nothing(reports)
        deprovisioned(reports)
    finally:
        secure_boot(False)
    assert states() == bare_metal
    for host in HOSTS:
        on_host(host, "rm -r /etc/site")
