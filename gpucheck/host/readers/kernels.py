"""What a host can boot into: the order of kernel releases, the builds of DKMS, and Secure Boot."""

import os
import re
from typing import Iterator, List, NamedTuple, Optional, Tuple

from .files import Path, content_of, folder_names

# The variable's name and its vendor GUID: UEFI specification 3.3, EFI_GLOBAL_VARIABLE.
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
ATTRIBUTE_BYTES = 4  # efivarfs puts the variable's attributes before its value
DKMS_TREE = "var/lib/dkms"


def release_key(release: str) -> List[Tuple[bool, int, str]]:
    """Return a sort key: numbers as numbers, and a number after any word, as rpm and dpkg order them.

    5.14.0-503.el9 is older than 5.14.0-503.11.1.el9, and 5.15.0-97 older than 5.15.0-113.
    """
    parts = re.findall(r"[0-9]+|[a-zA-Z]+", release)
    return [(True, int(part), "") if part.isdigit() else (False, 0, part) for part in parts]


class DkmsBuild(NamedTuple):
    """A module that DKMS has built for a kernel. installed: whether it is the version that the kernel loads."""

    name: str
    version: str
    kernel: str
    installed: bool


def dkms_builds(root: Path, name: str, version: str) -> Iterator[DkmsBuild]:
    """Read the tree of DKMS, /var/lib/dkms/NAME/VERSION/KERNEL/ARCH, as ``dkms status`` does.

    A built module has a directory ``module``; it is installed if the link NAME/kernel-KERNEL-ARCH points to it.
    """
    tree = os.path.join(root, DKMS_TREE, name)
    for kernel in folder_names(os.path.join(tree, version)) or ():
        for arch in folder_names(os.path.join(tree, version, kernel)) or ():
            place = os.path.join(tree, version, kernel, arch)
            if os.path.isdir(os.path.join(place, "module")):
                link = os.path.join(tree, f"kernel-{kernel}-{arch}")
                yield DkmsBuild(name, version, kernel, os.path.realpath(link) == os.path.realpath(place))


def secure_boot_variable(root: Path) -> Optional[bool]:
    """Return the firmware's variable, None if it does not exist or cannot be read."""
    value = content_of(os.path.join(root, SECURE_BOOT))
    return value[ATTRIBUTE_BYTES] == 1 if value is not None and len(value) > ATTRIBUTE_BYTES else None
