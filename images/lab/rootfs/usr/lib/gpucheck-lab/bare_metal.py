"""A lab host that appears as bare metal: what firmware, processor and boot loader say of it. SIMULATED.

Such a host has the file MARK. At each boot the simulated machine's PCI tree, firmware and processors are put over what
the container sees of the machine below, so that whoever reads or writes them (setpci, systemd-detect-virt, our own
modules) meets the simulated ones. The kernel's arguments are those that the host's own boot loader has.
"""

import re
import subprocess
from pathlib import Path

import kernel

MARK = kernel.ROOT / "usr/share/gpucheck-lab/bare-metal"
GRUB = kernel.ROOT / "boot/grub/grub.cfg"
ENTRIES = kernel.ROOT / "boot/loader/entries"
SHOWN = ("sys/bus", "sys/class", "sys/devices", "proc/cpuinfo", "proc/cmdline")


def chosen_kernel():
    """The release that the boot loader starts: GRUB's first entry, or the newest of the boot entries, "" for none."""
    grub = GRUB.read_text() if GRUB.exists() else ""
    first = re.search(r"^\s*linux\s+\S*/vmlinuz-(\S+)", grub, re.MULTILINE)
    if first:
        return first.group(1)
    releases = [read_entry(entry)["version"] for entry in ENTRIES.glob("*.conf")]
    return max(releases, key=lambda release: [int(part) for part in re.findall(r"\d+", release)], default="")


def appear():
    """What happens at boot, before anything else starts."""
    live = kernel.LIVE / "root"
    line = command_line(kernel.release())
    if line:
        kernel.write(live / "proc/cmdline", f"{line}\n")
    kernel.write(live / "proc/cpuinfo", cpuinfo(Path("/proc/cpuinfo").read_text()))
    if Path("/") != kernel.ROOT:
        return
    pairs = [(live / path, Path("/", path)) for path in SHOWN]
    for source, place in [*pairs, (kernel.LAB / "no-virtualization", Path("/usr/bin/systemd-detect-virt"))]:
        subprocess.run(["mount", "--bind", str(source), str(place)], check=True)


def cpuinfo(text):
    """The processors of the machine below, without the flag that says that they are a hypervisor's."""
    return re.sub(r"^(flags\s*:.*?) hypervisor\b", r"\1", text, flags=re.MULTILINE)


def command_line(release):
    """What the boot loader passes to the kernel of this release: its first entry, "" where it has none."""
    grub = GRUB.read_text() if GRUB.exists() else ""
    for path, words in re.findall(r"^\s*linux\s+(\S+)[ \t]*(.*)$", grub, re.MULTILINE):
        if path.endswith(f"/vmlinuz-{release}"):
            return f"BOOT_IMAGE={path} {words}".strip()
    for entry in sorted(ENTRIES.glob("*.conf")):
        fields = read_entry(entry)
        if fields.get("version") == release:
            return f"BOOT_IMAGE=(hd0,gpt2){fields['linux']} {fields['options']}".strip()
    return ""


def read_entry(path):
    """The fields of a boot entry as the Boot Loader Specification has them: a word, and the rest of the line."""
    return dict(line.split(None, 1) for line in path.read_text().splitlines() if len(line.split(None, 1)) > 1)


def grubby(arguments):
    """grubby --info=ALL, grubby --update-kernel=ALL [--args=WORDS] [--remove-args=WORDS], on the entries of ENTRIES."""
    options = dict(word.partition("=")[::2] for word in arguments)
    entries = sorted(ENTRIES.glob("*.conf"), reverse=True)
    if options.get("--info") == "ALL":
        for index, entry in enumerate(entries):
            fields = read_entry(entry)
            print(f'index={index}\nkernel="/boot{fields["linux"]}"\nargs="{fields["options"]}"')
            print(f'title="{fields["title"]}"\nid="{entry.stem}"')
    elif options.get("--update-kernel") == "ALL":
        added, removed = options.get("--args", "").split(), options.get("--remove-args", "").split()
        for entry in entries:
            words = read_entry(entry)["options"].split()
            words = [word for word in words if word not in added + removed] + added
            text = re.sub(r"^options .*$", f"options {' '.join(words)}", entry.read_text(), flags=re.MULTILINE)
            kernel.write(entry, text)
    else:
        print(f"grubby: the lab's stand-in does not know {' '.join(arguments)}")
        return 1
    return 0
