"""A lab of its own whose two hosts appear as bare metal: two kernels, a boot loader, RDMA cards, ACS. SIMULATED.

What is real on them: apt, dnf, dpkg, rpm, systemd, sshd, sudo, update-grub with grub-mkconfig, setpci. Stand-ins: the
kernel that runs, the packages, grub-probe (GRUB's disk), grubby, systemd-detect-virt.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.lab.e2e import LIST, Run, make, until
from tests.lab.own_lab import OwnLab

# Names a lab of this kind that is up: it is used as it is, and left standing.
KEPT = os.environ.get("GPUCHECK_TEST_BARE_METAL_LAB")
LAB = KEPT or "gpucheck-opts"
SUBNET = os.environ.get("GPUCHECK_TEST_BARE_METAL_SUBNET", "10.213.60.0/24")
OWN = OwnLab(LAB, SUBNET, options=("--bare-metal",))
DIRECTORY = OWN.directory
HOSTS = ("lab-apt", "lab-dnf")
RUNNING = {"lab-apt": "5.15.0-179-generic", "lab-dnf": "5.14.0-503.14.1.el9_5.x86_64"}
GRUB_FILE = "/etc/default/grub.d/90-gpucheck.cfg"
OLDER = {"lab-apt": "5.15.0-113-generic", "lab-dnf": "5.14.0-427.13.1.el9_4.x86_64"}
# What a site does to its hosts before it provisions them: its own package source, two kernels, one after the other.
SETTLE = {
    "lab-apt": """
echo "deb [signed-by=/etc/apt/keyrings/gpucheck-lab-os.asc] http://MIRROR/site/hosts/ubuntu2204/ /" \\
    >/etc/apt/sources.list.d/site.list
apt-get -qq update
for package in linux-image-OLDER linux-image-RUNNING linux-image-generic=5.15.0.179-1; do
    apt-get -qq install --yes "$package" >/dev/null 2>&1
done
""",
    "lab-dnf": """
printf '%s\\n' '[site]' 'name=The site (SIMULATED)' baseurl=http://MIRROR/site/hosts/rhel9/ enabled=1 gpgcheck=1 \\
    gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-gpucheck-lab-os >/etc/yum.repos.d/site.repo
for release in OLDER RUNNING; do dnf --quiet --assumeyes install "kernel-core-$release" >/dev/null; done
""",
}
# Every file that an option of these may write, with its content: the boot loader's, systemd's, the modules', the locks.
# Of grub.cfg and versionlock.list the entries alone, below: both hold remarks as well, on who wrote them and how.
FILES = """
cd / && find boot etc/apt etc/default etc/dnf/plugins etc/modprobe.d etc/modules-load.d etc/systemd/system \\
    etc/yum.repos.d usr/local/sbin var/lib/dkms -type f -not -name grub.cfg -not -name versionlock.list \\
    -not -name '*~' 2>/dev/null | sort | while read -r path; do printf '%s %s\\n' "$path" "$(sha256sum <"$path")"; done
"""


def on_host(host: str, script: str) -> str:
    """What a shell script says on a host. Fails where the script does."""
    words = ["docker", "exec", f"{LAB}-{host.removeprefix('lab-')}", "sh", "-euc", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{host}: {script}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def up() -> None:
    """The lab, made anew, with its hosts settled and booted from what their boot loaders have."""
    OWN.lab("down")
    OWN.up()
    mirror = SUBNET.rpartition(".")[0] + ".10"
    for host, script in SETTLE.items():
        on_host(host, script.replace("MIRROR", mirror).replace("OLDER", OLDER[host]).replace("RUNNING", RUNNING[host]))
        reboot(host)


def specify(**values: Any) -> None:
    """stack.yml: the driver alone, and what is asked for here."""
    path = DIRECTORY / "stack.yml"
    base = DIRECTORY / "base.yml"
    if not base.exists():
        content = yaml.safe_load(path.read_text())
        left_out = dict.fromkeys(("cuda", "cudnn", "nccl", "container_toolkit", "torch"), "none")
        base.write_text(yaml.safe_dump({**content, **left_out}))
    content = yaml.safe_load(base.read_text())
    own = values.get("repositories", {})
    values["repositories"] = own if isinstance(own, str) else content["repositories"] | own
    path.write_text(yaml.safe_dump({**content, **values}))


def run(target: str, reports: Path, args: str = "", **more: str) -> Run:
    """A make target on these hosts, without the closing verification, which is not about provisioning."""
    return make(target, reports, inventory=DIRECTORY / "inventory.yml", args=f"--skip-tags verify {args}", **more)


def provision(reports: Path, args: str = "", **values: Any) -> Run:
    """make provision with this specification; fails where that does. args: for ansible-playbook."""
    specify(**values)
    done = run("provision", reports, args)
    assert done.status == 0, done.text
    return done


def deprovisioned(reports: Path) -> None:
    """make deprovision; fails where that does."""
    done = run("deprovision", reports, CONFIRM="yes")
    assert done.status == 0, done.text


def changes_nothing(reports: Path, args: str = "") -> None:
    """A second run with the same specification: not one task changes, and no host boots."""
    before = {host: boots(host) for host in HOSTS}
    again = run("provision", reports, args)
    assert again.status == 0, again.text
    assert {host: again.recap(host)["changed"] for host in HOSTS} == dict.fromkeys(HOSTS, 0), again.text
    assert {host: boots(host) for host in HOSTS} == before


def kernel(host: str) -> str:
    """The release of the kernel that runs. SIMULATED."""
    return on_host(host, "cat /run/gpucheck-simulator/root/proc/sys/kernel/osrelease")


def boots(host: str) -> int:
    return int(on_host(host, "cat /var/lib/gpucheck-lab/boots"))


def cmdline(host: str) -> list[str]:
    """The arguments of the kernel that runs."""
    return on_host(host, "cat /proc/cmdline").split()


def packages(host: str) -> set[str]:
    """``name version`` of every installed package."""
    return {row.strip() for row in on_host(host, LIST[host]).splitlines()}


def holds(host: str) -> list[str]:
    """Held packages, version locks."""
    show = {
        "lab-apt": "apt-mark showhold",
        "lab-dnf": "grep -v -e '^#' -e '^$' /etc/dnf/plugins/versionlock.list || true",
    }
    return sorted(on_host(host, show[host]).splitlines())


def state(host: str) -> dict[str, Any]:
    """The host as far as these options may change it, to compare with another time."""
    return {
        "files": on_host(host, FILES).splitlines(),
        "packages": packages(host),
        "holds": holds(host),
        "entries": [*entries(host), *entries(host, recovery=True)],
        "arguments": cmdline(host),
        "enabled": on_host(
            host, "systemctl list-unit-files --state=enabled --no-legend --plain | cut -d' ' -f1"
        ).split(),
    }


def states() -> dict[str, dict[str, Any]]:
    return {host: state(host) for host in HOSTS}


def reboot(host: str) -> None:
    """The host is switched off and on, and has finished booting."""
    subprocess.run(["docker", "restart", f"{LAB}-{host.removeprefix('lab-')}"], capture_output=True, check=True)
    up_again = "systemctl is-active multi-user.target 2>/dev/null || :"
    until(lambda: on_host(host, up_again) == "active", f"{host} to boot")


def entries(host: str, *, recovery: bool = False) -> list[list[str]]:
    """The arguments of every normal boot entry, or of every one for recovery."""
    read = {
        "lab-apt": r"sed -n 's/^\s*linux\s\+\S\+//p' /boot/grub/grub.cfg",
        "lab-dnf": "sed -n 's/^options //p' /boot/loader/entries/*.conf",
    }
    found = [line.split() for line in on_host(host, read[host]).splitlines()]
    return [words for words in found if ("single" in words) == recovery]


def acs(host: str) -> dict[str, str]:
    """The ACS control register of every bridge that has one, as the real setpci reads it."""
    script = """
for device in /sys/bus/pci/devices/*; do
    name=$(basename "$device")
    if value=$(/usr/lib/gpucheck-lab/pciutils/setpci -s "$name" ECAP_ACS+6.w 2>/dev/null); then echo "$name $value"; fi
done"""
    return dict(line.split() for line in on_host(host, script).splitlines())


def above_gpus(host: str) -> set[str]:
    """Bus ids of the bridges between the root and each GPU: every folder that holds a GPU's."""
    found = on_host(
        host, "grep -l -e 0x0302 -e 0x0300 /sys/bus/pci/devices/*/class | xargs -n 1 dirname | xargs realpath"
    )
    return {part for path in found.splitlines() for part in path.split("/")[4:-1]}


def is_there(host: str, path: str) -> bool:
    return on_host(host, f"if [ -e {path} ]; then echo yes; fi") == "yes"


def loaded(host: str, module: str) -> bool:
    """Whether the kernel that runs shows the module. SIMULATED."""
    return is_there(host, f"/run/gpucheck-simulator/root/sys/module/{module}")


def refused(reports: Path, **values: Any) -> str:
    """What a run says that refuses both hosts."""
    specify(**values)
    done = run("provision", reports)
    assert done.status != 0, done.text
    return done.plain
