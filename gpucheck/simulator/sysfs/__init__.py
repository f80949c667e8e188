"""D/root: what the kernel of a simulated machine would show below /sys, /proc, /dev, /lib/modules and /var/lib/dkms.

One module a part of the tree: ``pci`` (functions, links, IOMMU groups, errors), ``config`` (configuration space),
``platform`` (processors, firmware, boot options), ``driver`` (modules, kernels, device nodes, and which file
has which meaning) and ``kernel_log``. Links are relative, so that the tree can be copied anywhere.
"""

from pathlib import Path

from gpucheck.simulator.machine import Machine
from gpucheck.simulator.sysfs.driver import kernel_log, write_driver
from gpucheck.simulator.sysfs.pci import Tree, write_pci
from gpucheck.simulator.sysfs.platform import write_platform

__all__ = ["write_root"]


def write_root(machine: Machine, root: Path, kernel: str, *, whole: bool) -> None:
    """Write the whole tree.

    kernel: the release whose module folder holds the installed driver. whole: as in ``driver.write_driver``.
    """
    tree = Tree(root)
    write_pci(machine, tree, whole=whole)
    write_platform(machine, tree, kernel)
    write_driver(machine, tree, kernel, whole=whole)
    tree.raw("dev/kmsg", kernel_log(machine, kernel, driver=whole).encode())
