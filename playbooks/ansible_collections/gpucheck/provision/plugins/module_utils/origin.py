"""Origin of the driver on a host: NVIDIA's repository, a distribution, an installer, or another manager."""

import glob
import os
import re

from .readers.files import Unreadable, command, text

# A driver that NVIDIA's runfile installed belongs to no package, and overwrites those of the packages.
RUNFILE = "/usr/bin/nvidia-uninstall"
DRIVER = re.compile(
    r"^(lib)?nvidia-|^linux-(modules|objects|signatures)-nvidia-\d|^(akmod|kmod|dkms)-nvidia|^xorg-x11-drv-nvidia"
)
# Of the same name, and no driver: GPUDirect Storage, containers, CUDA of an archive, tools of every driver, firmware.
NO_DRIVER = re.compile(
    r"^(lib)?nvidia-(fs|gds|container|docker|cuda|profiler|visual|prime|settings|modprobe|xconfig|common|ml-dev|gpu-firmware"
    r"|texture|vaapi|egl|detect|mig-manager)"
)
CHOOSES = re.compile(r"^nvidia-driver-(assistant|pinning)")
ARCHIVE_NAME = re.compile(r"^linux-(modules|objects|signatures)-nvidia|^(lib)?nvidia.*-server(-|$)")
ARCHIVE_VERSION = re.compile(r"-\d+ubuntu0\.\d|~gpu\d")
# ELRepo's kmod-nvidia-470xx; kmod-nvidia-580.178.04-5.14.0-503... is NVIDIA's own, built for one kernel.
OTHER_RPMS = re.compile(r"^(akmod-nvidia|xorg-x11-drv-nvidia|nvidia-x11-drv|kmod-nvidia-\d+xx|nvidia-open-kmod)")
# As dpkg and rpm name who made a package. The keys are those of NVIDIA's folders rhel8, rhel9 and rhel10.
NVIDIA = re.compile(r"@nvidia\.com|^nvidia\b", re.IGNORECASE)
NVIDIA_KEYS = re.compile(r"key id \w*(d42d0685|cdf6ba43)\b", re.IGNORECASE)
DISTRIBUTIONS = re.compile(
    r"ubuntu\.com|debian\.(org|net)|canonical|launchpad|rpm ?fusion|elrepo|alma|red ?hat|rocky|oracle|ciq|negativo"
    r"|fedora|centos",
    re.IGNORECASE,
)
# NVIDIA's own package names in its repositories for apt and dnf, for packages whose maintainer is not known.
NAMES = re.compile(
    r"^(lib)?nvidia|^kmod-nvidia|^xserver-xorg-video-nvidia|^firmware-nvidia|^libxnvctrl|^cuda|^libcuda|^(lib)?cudnn"
    r"|^(lib)?nccl|^libcu(blas|dss|fft|file|obj|pti|rand|solver|sparse|sparselt|tensor)|^libnpp|^libnv(fatbin|infer|jitlink"
    r"|jpeg|onnxparsers|ptxcompiler|sdm|vm)|^nvlsm|^gds-tools|^nsight-|^datacenter-gpu-manager|^gdr(copy|drv)|^libgdrapi"
)
# NVIDIA makes them as well, and a driver is no reason to remove the drivers of the network.
NETWORK = re.compile(
    r"^(kmod-)?(mlnx|ofed|doca|mlx|isert|iser|srp|knem|xpmem)|^(lib)?(ibverbs|rdmacm|ibumad)|^rdma-core|^ucx"
)
RPM_LAYOUT = "%{NAME}\t%{VENDOR}\t%{RSAHEADER:pgpsig} %{SIGPGP:pgpsig}\n"
DPKG_LAYOUT = "${Package}\t${Maintainer}\t\n"
FROM_REPO = ["--installed", "--queryformat", "%{name}\t%{from_repo}\n"]
# A row of apt-cache policy with a version; *** is the installed one.
VERSION = re.compile(r"^ (   |\*\*\*) \S+ ")
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


def drivers(packages):
    return [name for name in sorted(packages) if DRIVER.search(name) and not NO_DRIVER.search(name)]


def makers(names, family):
    """Return {name: (vendor, signature)} from the package manager's database, {} if it is unavailable."""
    query = ["dpkg-query", "-W", "-f", DPKG_LAYOUT] if family == "dpkg" else ["rpm", "-q", "--qf", RPM_LAYOUT]
    try:
        lines = command([*query, *names]).splitlines() if names else []
    except Unreadable:
        return {}
    rows = [line.split("\t") for line in lines]
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}


def maker(name, version, known):
    """(source, words): source is nvidia, distribution or other. known: of ``makers``."""
    vendor, signature = known.get(name, ("", ""))
    if NVIDIA.search(vendor) or NVIDIA_KEYS.search(signature):
        return "nvidia", ""
    if DISTRIBUTIONS.search(vendor):
        return "distribution", vendor
    # A mirror may rebuild packages without a vendor: then only the names of the archives are known.
    odd = ARCHIVE_NAME.search(name) or ARCHIVE_VERSION.search(version) or OTHER_RPMS.search(name)
    return ("other", "") if odd else ("nvidia", "")


def installed_from(names, family):
    """Return {name: addresses (dpkg) or names (rpm) of the repositories that have the installed version}."""
    query = ["apt-cache", "policy"] if family == "dpkg" else ["dnf", "--quiet", "--cacheonly", "repoquery", *FROM_REPO]
    try:
        lines = command([*query, *sorted(names)]).splitlines()
    except Unreadable:
        return {}
    if family != "dpkg":
        rows = [line.split("\t") for line in lines]
        return {row[0]: set(row[1:]) for row in rows}
    found, name, here = {}, "", False
    for line in lines:
        if not line.startswith(" "):
            name, here = line.partition(":")[0], False
        elif VERSION.match(line):
            here = line.startswith(" ***")
        elif here:
            found.setdefault(name, set()).update(word.rstrip("/") for word in line.split()[1:2])
    return found


def of_nvidia(names, plan):
    """Return which of these installed packages are NVIDIA's: by who made them, else by where they came from.

    Names decide where neither is known, and for packages of a distribution whose archive the plan uses.
    """
    family = "dpkg" if plan["package_manager"] == "apt" else "rpm"
    rows = plan.get("repositories") or ()
    planned = {str(row.get(key)).rstrip("/") for row in rows for key in ("url", "name")}
    known, sources = makers(sorted(names), family), installed_from(names, family)
    found = set()
    for name in names:
        vendor, signature = known.get(name, ("", ""))
        made = NVIDIA.search(vendor) or NVIDIA_KEYS.search(signature)
        by_name = NAMES.search(name) and (plan.get("archive") or not DISTRIBUTIONS.search(vendor))
        if not NETWORK.search(name) and (made or sources.get(name, set()) & planned or by_name):
            found.add(name)
    return found


def by_source(packages, family, runfile=RUNFILE):
    """Return {other, distribution, nvidia}: driver packages by origin, as text. Each overwrites the others' files.

    distribution: built by the distribution, which a plan with its archive as the source expects. nvidia: built by
    NVIDIA, without packages that only choose a driver. Packages of an unknown vendor are not reported.
    """
    names = drivers(packages)
    known, found = makers(names, family), {"other": [], "distribution": [], "nvidia": []}
    for name in names:
        source, words = maker(name, packages[name], known)
        if source == "nvidia" and (CHOOSES.search(name) or not NVIDIA.search(known.get(name, ("", ""))[0])):
            continue
        found[source].append("{} {}{}".format(name, packages[name], f" ({words})" if words else ""))
    if os.path.exists(runfile):
        found["other"].append(f"{runfile} of a runfile installation")
    return found


def without_package(packages, dkms, kernel, root="/"):
    """Return driver files that no package owns, as text: an installer's, or what remains of one.

    Only where no driver package is there at all: some packages link their module on the host, so that it is of none.
    """
    if drivers(packages) or dkms:
        return []
    patterns = [os.path.join(root, folder.lstrip("/"), "libcuda.so.*.*") for folder in LIBRARIES]
    patterns.append(os.path.join(root, "lib/modules", glob.escape(kernel), "**/nvidia.ko*"))
    seen = [path for pattern in patterns for path in sorted(glob.glob(pattern, recursive=True))]
    return [f"{path} of no package" for path in seen]


def managed(root="/"):
    found = []
    if os.path.exists(os.path.join(root, "run/ostree-booted")):
        found.append(
            "this system boots an image (ostree), so packages cannot be installed as on other hosts. Build the driver "
            "into that image (bootc or rpm-ostree), and check the host with verify.yml"
        )
    release = text(os.path.join(root, "etc/dgx-release"))
    if release is not None:
        version = re.search(r"DGX_(?:OTA|SWBUILD)_VERSION=\"?([\w.]+)", release)
        found.append(
            "this is DGX OS{}, whose driver, fabric manager and tools come from its own repositories and depend on "
            "each other. Update it by its user guide, remove the host from group gpu, and check it with verify.yml "
            "from a separate inventory".format(" " + version.group(1) if version else "")
        )
    pid = os.path.join(root, "run/nvidia/nvidia-driver.pid")
    if os.path.exists(pid):
        found.append(
            f"the GPU Operator runs the driver in a container here ({pid}). Disable that (driver.enabled=false in its "
            "ClusterPolicy or Helm values), reboot the node, and run again; or remove the host from group "
            "gpu"
        )
    return found
