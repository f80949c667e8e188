#!/usr/bin/python3
"""The programs around the stand-in kernel, each called by its own name: modprobe, rmmod, lsmod, modinfo, dkms,
update-initramfs, dracut, grubby, mokutil; and ``programs.py boot``, which is what happens at each boot. SIMULATED.
"""

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bare_metal
import extra_modules
import kernel


def boot(_arguments):
    """What firmware and kernel do at boot."""
    boots = kernel.STATE / "boots"
    kernel.write(boots, f"{int(boots.read_text()) + 1 if boots.exists() else 1}\n")
    if bare_metal.MARK.exists() and bare_metal.chosen_kernel():
        kernel.write(kernel.LAB / "kernel-release", f"{bare_metal.chosen_kernel()}\n")
    kernel.enroll_requested()
    shutil.rmtree(kernel.LIVE, ignore_errors=True)
    shutil.copytree(kernel.STATIC, kernel.LIVE, symlinks=True)
    kernel.write(kernel.LIVE / "root/proc/sys/kernel/osrelease", f"{kernel.release()}\n")
    kernel.sync_modules()
    if kernel.gpus() and not kernel.blacklisted():
        kernel.load_nouveau()
    elif kernel.gpus() and kernel.installed():
        refusal = kernel.load_nvidia()
        if refusal:
            print(f"modprobe: {refusal}", file=sys.stderr)
    # What systemd does on a machine, and leaves in a container.
    modprobe(extra_modules.at_boot())
    if bare_metal.MARK.exists():
        bare_metal.appear()
    # Host keys belong to a host, not to the image that it is made from.
    if Path("/") == kernel.ROOT and not Path("/etc/ssh/ssh_host_ed25519_key").exists():
        subprocess.run(["ssh-keygen", "-A"], check=True)
    return 0


def modprobe(arguments):
    """modprobe MODULE, modprobe -r MODULE."""
    names = [word for word in arguments if not word.startswith("-")]
    if "-r" in arguments or "--remove" in arguments:
        return rmmod(names)
    status = 0
    for name in (word.replace("-", "_") for word in names):
        if kernel.is_loaded(name):
            continue
        if name == "nouveau":
            kernel.load_nouveau()
            continue
        if name in extra_modules.LOAD:
            refusal = extra_modules.LOAD[name]()
        elif name.startswith("nvidia"):
            refusal = kernel.load_nvidia()
        else:
            refusal = f"FATAL: Module {name} not found in directory /lib/modules/{kernel.release()}"
        if refusal:
            print(f"modprobe: {refusal}", file=sys.stderr)
            status = 1
    return status


def rmmod(arguments):
    """Remove modules."""
    for name in (word.replace("-", "_") for word in arguments if not word.startswith("-")):
        if not kernel.is_loaded(name):
            print(f"rmmod: ERROR: Module {name} is not currently loaded", file=sys.stderr)
            return 1
        extra_modules.remove(name) if name in extra_modules.LOAD else kernel.remove(name)
    return 0


def lsmod(_arguments):
    """List the modules in the simulated kernel."""
    print("Module                  Size  Used by")
    path = kernel.LIVE / "root/proc/modules"
    for line in path.read_text().splitlines() if path.exists() else []:
        name, size, used = line.split()[:3]
        print(f"{name:<20} {size:>8}  {used}")
    return 0


def modinfo(arguments):
    """modinfo [-F FIELD] nvidia."""
    module = kernel.installed()
    field = arguments[arguments.index("-F") + 1] if "-F" in arguments else None
    if arguments[-1:] != ["nvidia"] or not module:
        print(f"modinfo: ERROR: Module {' '.join(arguments[-1:])} not found.", file=sys.stderr)
        return 1
    if field:
        print(module.get(field, ""))
    else:
        print(f"filename:       /lib/modules/{kernel.release()}/updates/dkms/nvidia.ko")
        print("\n".join(f"{key + ':':<15} {value}" for key, value in module.items()))
    return 0


def rebuild_initramfs(_arguments):
    """update-initramfs and dracut: the next boot sees modprobe.d as it is now."""
    snapshot = kernel.STATE / "initramfs"
    shutil.rmtree(snapshot, ignore_errors=True)
    shutil.copytree(kernel.MODPROBE_D, snapshot)
    return 0


def dkms(arguments):
    """dkms add|remove -v VERSION -l LICENSE, dkms autoinstall, dkms status.

    The license is ours: a stand-in package says with it which flavour its sources are.
    """
    options = {word: arguments[index + 1] for index, word in enumerate(arguments[:-1]) if word.startswith("-")}
    version, state = options.get("-v", ""), kernel.STATE / "dkms"
    action = arguments[0] if arguments else "status"
    if action == "add":
        shutil.rmtree(state, ignore_errors=True)
        extra_modules.forget("nvidia")
        kernel.write(state / f"nvidia-{version}", f"version={version}\nlicense={options['-l']}\nbuilt=\n")
        return build_modules()
    if action == "remove":
        # An upgrade has put its own version in place before the old package is removed.
        if (state / f"nvidia-{version}").exists():
            shutil.rmtree(state)
            shutil.rmtree(kernel.STATE / "modules", ignore_errors=True)
            extra_modules.forget("nvidia")
            kernel.sync_modules()
        return 0
    if action == "autoinstall":
        return build_modules()
    for source in sorted(state.glob("nvidia-*")) if state.is_dir() else []:
        built = kernel.read_pairs(source)["built"]
        name = f"nvidia/{kernel.read_pairs(source)['version']}"
        print(f"{name}, {built}, x86_64: installed" if built else f"{name}: added")
    return 0


def build_modules():
    """Build for the running kernel what DKMS knows. Without headers it is skipped, and that is no error: as in DKMS."""
    running, state = kernel.release(), kernel.STATE / "dkms"
    for source in sorted(state.glob("nvidia-*")) if state.is_dir() else []:
        if not kernel.has_headers(running):
            print(f"Module build for kernel {running} was skipped since the kernel headers for this kernel do not seem")
            print("to be installed.")
            continue
        module = kernel.read_pairs(source)
        target = kernel.STATE / "modules" / running / "updates/dkms/nvidia.ko"
        content = f"SIMULATED kernel module\nversion={module['version']}\nlicense={module['license']}\n"
        kernel.write(target, content + extra_modules.peer_memory() + kernel.signature())
        extra_modules.keep("nvidia", module["version"], content)
        kernel.write(source, f"version={module['version']}\nlicense={module['license']}\nbuilt={running}\n")
        kernel.sync_modules()
        # A rejected module is not a failure of the package: the next boot decides.
        if not kernel.is_loaded("nouveau"):
            refusal = kernel.load_nvidia()
            if refusal:
                print(f"modprobe: {refusal}")
    return 0


def mokutil(arguments):
    """mokutil --test-key FILE, mokutil --import FILE: the keys that the firmware accepts beside its own."""
    path = arguments[-1]
    key, enrolled, requested = kernel.digest(Path(path)), kernel.keys("enrolled"), kernel.keys("requested")
    if arguments[0] == "--import":
        kernel.write(kernel.STATE / "requested-keys", "\n".join([*requested, key]))
    elif arguments[0] != "--test-key":
        print(f"mokutil: the lab's stand-in does not know {' '.join(arguments)}", file=sys.stderr)
        return 255
    elif key in enrolled:
        print(f"{path} is already enrolled")
    elif key in requested:
        print(f"SKIP: {path} is already in the enrollment request")
    else:
        print(f"{path} is not enrolled")
    # As in mokutil: what need not be enrolled any more is its failure.
    return int(arguments[0] == "--test-key" and key in enrolled + requested)


PROGRAMS = {
    "modprobe": modprobe,
    "rmmod": rmmod,
    "lsmod": lsmod,
    "modinfo": modinfo,
    "dkms": dkms,
    "update-initramfs": rebuild_initramfs,
    "dracut": rebuild_initramfs,
    "grubby": bare_metal.grubby,
    "mokutil": mokutil,
    "boot": boot,
}


def main(words):
    """Run the program that we are called as. Returns the exit status."""
    name, arguments = Path(words[0]).name, words[1:]
    if name == "programs.py":
        name, arguments = (arguments or ["boot"])[0], arguments[1:]
    return PROGRAMS[name](arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
