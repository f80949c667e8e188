"""D/root: what the kernel of a simulated machine would show below /sys, /proc, /dev, /lib/modules and /var/lib/dkms.

One module a part of the tree: ``pci`` (functions, links, IOMMU groups, errors, configuration space), ``platform``
(processors, firmware, boot options) and ``driver`` (modules, kernels, device nodes, the kernel log, and which file has
which meaning). Links are relative, so that the tree can be copied anywhere.
"""
