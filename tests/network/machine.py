"""A virtual machine with Debian's kernel on the files of this host: Soft-RoCE at both ends of a cable, no hardware.

Real are the kernel with its RDMA stack, rdma and ibstat. The root is this host's, read-only, below a layer in memory;
packages are unpacked and not installed. Emulated without KVM, so that it also works inside another virtual machine.
"""

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# The kernel's own package is named by the one that depends on it.
KERNEL = "linux-image-amd64"
PACKAGES = (
    *("busybox-static", "ibverbs-providers", "ibverbs-utils", "infiniband-diags", "iproute2"),
    *("libibmad5", "libibnetdisc5", "libibumad3", "libibverbs1", "libpci3", "librdmacm1", "perftest"),
)
TO_BOOT = ("virtio", "virtio_ring", "virtio_pci", "9pnet", "9pnet_virtio", "9p", "overlay")
LATER = ("crc32_generic", "veth", "rdma_rxe", "ib_uverbs", "rdma_ucm", "ib_umad", "sch_netem")
MEMORY_MIB = 1500
# An emulated processor is about twenty times slower; a busy host doubles that.
LIMIT_S = 900
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module"; done </modules/order
options=trans=virtio,version=9p2000.L,msize=262144,ro,cache=loose
mount -t 9p -o $options host /host && mount -t 9p -o $options unpacked /unpacked
mount -t tmpfs memory /memory; mkdir /memory/files /memory/work
mount -t overlay -o lowerdir=/unpacked:/host,upperdir=/memory/files,workdir=/memory/work root /root
for folder in proc sys dev; do mount --move /$folder /root/$folder; done
mount -t tmpfs run /root/run
exec chroot /root /bin/bash /guest
"""
BEGIN = """export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
rm -f /.dockerenv
busybox modprobe -a {modules}
show() {{ printf '@@ %s\\n' "$1"; shift; "$@" 2>&1 || echo "@@ status $?"; }}
facts() {{ show "$1" {python} -c "import msgspec; from pathlib import Path; from gpucheck.host.network import read_rdma
print(msgspec.json.encode(read_rdma(Path('/'))).decode())"; }}
"""
END = "\nshow end true\necho o >/proc/sysrq-trigger; sleep 60\n"


def missing() -> str | None:
    """What the machine needs and this host lacks."""
    needed = ("qemu-system-x86_64", "apt-get", "dpkg-deb")
    return next((program for program in needed if shutil.which(program) is None), None)


def run(folder: Path, script: str) -> dict[str, str]:
    """Boot, run a shell script, power off. Return what each ``show NAME COMMAND`` of the script printed, by name."""
    unpacked = _unpacked(folder)
    start = BEGIN.format(modules=" ".join(LATER), python=ROOT / ".venv/bin/python")
    (unpacked / "guest").write_text(f"{start}cd {ROOT}\n{script}{END}")
    (kernel,) = (unpacked / "boot").glob("vmlinuz-*")
    shares = (("host", Path("/")), ("unpacked", unpacked))
    command = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]
    command += ["-m", str(MEMORY_MIB), "-nographic", "-no-reboot", "-net", "none", "-kernel", str(kernel)]
    command += ["-initrd", str(_initrd(folder, unpacked, kernel.name.removeprefix("vmlinuz-")))]
    command += ["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]
    for tag, path in shares:
        options = f"path={path},mount_tag={tag},security_model=none,readonly=on,multidevs=remap"
        command += ["-virtfs", f"local,{options}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
    printed = done.stdout.decode(errors="replace").replace("\r", "")
    assert "@@ end" in printed, f"the machine did not run to its end: {printed[-3000:]}{done.stderr.decode()[-500:]}"
    return dict(_sections(printed))


def facts(text: str) -> list[dict[str, Any]]:
    """The devices of a ``facts NAME`` of the script."""
    devices: list[dict[str, Any]] = json.loads(text)
    return devices


def _sections(printed: str) -> Iterator[tuple[str, str]]:
    for part in printed.split("@@ ")[1:]:
        name, _, text = part.partition("\n")
        yield name.strip(), text.strip()


def _unpacked(folder: Path) -> Path:
    """The packages as files, with the merged folders of /usr that their host has."""
    target, archives = folder / "unpacked", folder / "archives"
    if target.exists():
        return target
    archives.mkdir()
    depends = subprocess.run(["apt-cache", "depends", KERNEL], capture_output=True, text=True, check=True).stdout
    kernel = next(line.split()[-1] for line in depends.splitlines() if "Depends: linux-image-" in line)
    get = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", kernel, *PACKAGES]
    subprocess.run(get, cwd=archives, check=True, capture_output=True)
    for archive in archives.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, target], check=True)
    for name in ("bin", "sbin", "lib"):
        if (target / name).is_dir():
            shutil.copytree(target / name, target / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(target / name)
    (release,) = (target / "usr/lib/modules").iterdir()
    # busybox looks below lib/ of its base.
    (target / "lib").symlink_to("usr/lib")
    subprocess.run([target / "usr/bin/busybox", "depmod", "-b", target, release.name], check=True)
    (target / "lib").unlink()
    return target


def _initrd(folder: Path, unpacked: Path, release: str) -> Path:
    """A small root that mounts the large one. cpio and gzip of busybox and Python: nothing is installed for it."""
    tree, made = folder / "initrd", folder / "initrd.gz"
    if made.exists():
        return made
    for name in ("bin", "proc", "sys", "dev", "host", "unpacked", "root", "memory", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy(unpacked / "usr/bin/busybox", tree / "bin/busybox")
    modules = unpacked / "usr/lib/modules" / release
    order = list(dict.fromkeys(path for name in TO_BOOT for path in _with_those_before(modules, name)))
    for path in order:
        shutil.copy(modules / path, tree / "modules")
    (tree / "modules/order").write_text("".join(f"{Path(path).name}\n" for path in order))
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    cpio = [str(tree / "bin/busybox"), "cpio", "-o", "-H", "newc"]
    archive = subprocess.run(cpio, cwd=tree, input=names.encode(), capture_output=True, check=True).stdout
    made.write_bytes(gzip.compress(archive, 1))
    return made


def _with_those_before(modules: Path, name: str) -> list[str]:
    """The module's file after those that it needs; modules.dep lists these in the opposite order."""
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, before = line.partition(":")
        if Path(path).name.partition(".")[0].replace("-", "_") == name:
            return [*reversed(before.split()), path]
    raise LookupError(f"{modules}: no module {name}")
