"""What a site brings by itself: sources that it manages, a mirror for its own hosts alone, a key, a newer kernel.

Package managers, systemd and update-grub are real on the hosts, which appear as bare metal (SIMULATED, see
bare_metal.py). Stand-ins: the firmware, mokutil, and DKMS, whose signature is the hash of a certificate. Not proven
here: that a real firmware boots, and that a real kernel checks a signature.

Every test begins with bare hosts and ends by showing that they are again as it found them.
"""

import json

import pytest
import yaml

from gpucheck.host.readers.kernels import SECURE_BOOT
from tests.lab import tls_mirror
from tests.lab.bare_metal import (
    DIRECTORY,
    HOSTS,
    LAB,
    RUNNING,
    SUBNET,
    boots,
    changes_nothing,
    cmdline,
    deprovisioned,
    is_there,
    kernel,
    loaded,
    on_host,
    packages,
    provision,
    reboot,
    refused,
    run,
    specify,
    states,
)
from tests.lab.e2e import provision_json

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


CLIENT = {"client_certificate": "/etc/gpucheck/mirrors/site.pem", "client_key": "/etc/gpucheck/mirrors/site.key"}
TRUST = "/usr/local/share/ca-certificates/site.crt"


def test_a_mirror_that_asks_for_a_client_certificate_gets_the_one_of_the_vault(bare_metal, reports, tmp_path):
    tls_mirror.certificates(tmp_path, IP)
    tls_mirror.serve(f"{LAB}-mirror", tmp_path)
    for host in HOSTS:
        tls_mirror.sh("docker", "cp", tmp_path / "ca.pem", f"{LAB}-{host.removeprefix('lab-')}:{TRUST}")
        on_host(host, "update-ca-certificates >/dev/null 2>&1")
    specify()
    known = yaml.safe_load((DIRECTORY / "base.yml").read_text())["repositories"]["nvidia-cuda"]
    here = {
        key: str(known[key]).replace(f"http://{IP}/", f"https://{IP}:{tls_mirror.PORT}/") for key in ("url", "key_url")
    }
    files = ("--ca-file", "ca.pem"), ("--client-cert", "client.pem"), ("--client-key", "client.key")
    contents = zip(CLIENT.values(), ("client.pem", "client.key"), strict=True)
    variables = {
        "repository_client_files": {path: (tmp_path / name).read_text() for path, name in contents},
        "check_repositories_arguments": [word for option, name in files for word in (option, str(tmp_path / name))],
    }
    (tmp_path / "vault.json").write_text(json.dumps(variables))
    args = f"-e @{tmp_path}/vault.json"

    done = provision(reports, args, repositories={"nvidia-cuda": {**known, **here, **CLIENT}})

    assert "PRIVATE KEY" not in done.text
    for host in HOSTS:
        assert loaded(host, "nvidia")
        assert on_host(host, f"stat -c %a {CLIENT['client_key']}") == "600"
    assert on_host("lab-apt", f"stat -c %U {CLIENT['client_key']}") == "_apt"
    changes_nothing(reports, args)

    deprovisioned(reports)
    assert states() == bare_metal
    for host in HOSTS:
        assert not is_there(host, "/etc/gpucheck/mirrors")
        on_host(host, f"rm {TRUST}; update-ca-certificates >/dev/null 2>&1")


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


NEWER = {"lab-apt": "5.15.0-181-generic", "lab-dnf": "5.14.0-503.19.1.el9_5.x86_64"}
# The sources have moved on: headers of the running kernel are in none of them.
LOSE = {
    "lab-apt": f"""
printf '%s\\n' 'Package: linux-headers-{RUNNING["lab-apt"]}' 'Pin: version *' 'Pin-Priority: -1' \\
    >/etc/apt/preferences.d/moved-on""",
    "lab-dnf": "echo 'excludepkgs=kernel-devel*-5.14.0-503.14.1.el9_5*' >>/etc/dnf/dnf.conf",
}
KERNELS = {"lab-apt": {f"linux-image-{NEWER['lab-apt']}", "linux-image-generic"}, "lab-dnf": {"kernel-core"}}


def test_a_kernel_without_headers_is_upgraded_before_the_driver_and_stays_when_that_goes(bare_metal, reports):
    """The last test of this lab: its hosts have another kernel afterwards."""
    for host in HOSTS:
        on_host(host, LOSE[host])
    said = refused(reports)
    for name in (f"linux-headers-{RUNNING['lab-apt']}", f"kernel-devel-matched-{RUNNING['lab-dnf']}"):
        assert f"no package source offers {name}" in said
    assert said.count("or set kernel: upgrade in stack.yml") >= 2
    count = {host: boots(host) for host in HOSTS}

    specify(kernel="upgrade")
    planned = run("plan", reports).plain
    for host in HOSTS:
        words = f"{host}: kernel {RUNNING[host]} would be upgraded to {NEWER[host]}, because no package"
        assert words in planned
        assert kernel(host) == RUNNING[host]
    provision(reports, kernel="upgrade")

    for host in HOSTS:
        assert kernel(host) == NEWER[host]
        assert f"vmlinuz-{NEWER[host]}" in cmdline(host)[0]
        assert loaded(host, "nvidia")
        # Into the kernel, and once more to be rid of nouveau.
        assert boots(host) == count[host] + 2
        assert provision_json(reports)["hosts"][host]["reboots"] == 2
    changes_nothing(reports)

    deprovisioned(reports)
    for host, now in states().items():
        assert kernel(host) == NEWER[host]
        left = {row.split()[0] for row in now["packages"]} - {row.split()[0] for row in bare_metal[host]["packages"]}
        assert not any("nvidia" in name for name in left)
        names = {row.split()[0] for row in now["packages"]}
        assert names >= KERNELS[host]
