"""What the facts module reads of packages, kernels and headers, by the family of the system."""

import pytest

from tests.playbooks.modules import shared
from tests.playbooks.planned import DATA
from tests.playbooks.stubs import program, script

host = shared("host")


def rpm_list(tools, *rows):
    """rpm prints "(none)" for a missing epoch, so the layout that is asked for has to leave it away itself."""
    wanted = "%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}"
    listing = "".join(f"{row}\\n" for row in rows)
    script(tools / "rpm", f"#!/bin/sh\ncase \"$*\" in *'{wanted}'*) printf '%b' '{listing}';; *) exit 1;; esac\n")


def test_rpm_versions_carry_the_epoch_where_there_is_one(tools):
    rpm_list(
        tools,
        "nvidia-driver-cuda\\t3:580.178.04-1.el9\\t5\\tx86_64",
        "libnccl\\t2.30.7-1+cuda13.0\\t5\\tx86_64",
        "gpg-pubkey\\td42d0685-62589a51\\t5\\t(none)",
    )

    packages, doubled, _ = host.rpm_packages()

    assert packages == {"nvidia-driver-cuda": "3:580.178.04-1.el9", "libnccl": "2.30.7-1+cuda13.0"}
    assert doubled == {}


def test_a_package_that_is_there_twice_is_noticed_kernels_and_other_architectures_excepted(tools):
    """What a power cut in the middle of an rpm transaction leaves behind; seen in the lab."""
    rpm_list(
        tools,
        "libnvidia-ml\\t3:580.95.05-1.el9\\t9\\tx86_64",
        "libnvidia-ml\\t3:580.178.04-1.el9\\t5\\tx86_64",
        "kernel-core\\t5.14.0-1\\t5\\tx86_64",
        "kernel-core\\t5.14.0-2\\t6\\tx86_64",
        "glibc\\t2.34-1\\t5\\tx86_64",
        "glibc\\t2.34-1\\t5\\ti686",
    )

    packages, doubled, kernels = host.rpm_packages()

    assert doubled == {"libnvidia-ml": ["3:580.178.04-1.el9", "3:580.95.05-1.el9"]}
    assert packages["libnvidia-ml"] == "3:580.95.05-1.el9"
    assert kernels == {"kernel-core": ["5.14.0-1", "5.14.0-2"]}


def test_headers_are_found_where_each_family_puts_them(tmp_path):
    for folder in (
        "lib/modules/5.15.0-1-generic/build",
        "usr/src/linux-headers-6.8.0-2",
        "usr/src/kernels/5.14.0-3.el9",
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "Makefile").touch()
    (tmp_path / "lib/modules/5.15.0-9-generic").mkdir()
    # What a removed package leaves behind.
    (tmp_path / "usr/src/kernels/5.14.0-2.el9").mkdir()

    assert host.kernels_with_headers(str(tmp_path)) == ["5.14.0-3.el9", "5.15.0-1-generic", "6.8.0-2"]


def test_a_package_manager_that_fails_is_said_not_read_as_empty(tools):
    """A host whose package database is damaged must not look like a bare one."""
    program(tools, "dpkg-query", "", status=2)
    with pytest.raises(host.Unreadable, match=r"dpkg-query: exit 2"):
        host.dpkg_packages()

    (tools / "dpkg-query").unlink()
    with pytest.raises(host.Unreadable, match="dpkg-query"):
        host.dpkg_packages()


RSA, EDDSA = "signing-key-rsa2048.asc", "signing-key-ed25519.asc"


def rpm_trusts(tools, *descriptions):
    """An rpm that has imported these keys, and prints a key with its own armor header."""
    (tools / "keys").write_text("\n".join(descriptions) + "\n")
    query = "-qa gpg-pubkey --qf %{DESCRIPTION}"
    script(tools / "rpm", f"#!/bin/sh\ncase \"$*\" in '{query}'*) /bin/cat {tools}/keys;; *) exit 1;; esac\n")


def test_keys_that_rpm_trusts_are_known_by_their_whole_fingerprint(tools):
    """Two keys may share the eight hex digits that rpm names them by."""
    header = "-----BEGIN PGP PUBLIC KEY BLOCK-----\nVersion: rpm-4.16.1.3"
    described = [
        (DATA / name).read_text().replace("-----BEGIN PGP PUBLIC KEY BLOCK-----", header) for name in (RSA, EDDSA)
    ]
    rpm_trusts(tools, described[0], "(none)", "damaged -----END PGP PUBLIC KEY BLOCK-----", described[1])

    assert host.rpm_keys() == [
        "E330F152D648B8AD42B0AF30D384DE7990FFEED0",
        "FDEE779FA5C8D8701EE58DB39E5FF66A7905B8FB",
    ]
    rpm_trusts(tools)
    assert host.rpm_keys() == []


def test_the_python_of_dnf_is_told_by_what_its_name_leads_to(tmp_path):
    """/usr/libexec/platform-python of the EL family; on 8 it is Python 3.6 whatever python3 is."""
    (tmp_path / "platform-python3.6").touch()
    (tmp_path / "platform-python").symlink_to("platform-python3.6")
    (tmp_path / "broken").symlink_to("platform-python3.9")

    assert host.platform_python(str(tmp_path / "platform-python")) == "3.6"
    assert host.platform_python(str(tmp_path / "broken")) == ""
    assert host.platform_python(str(tmp_path / "none")) == ""
