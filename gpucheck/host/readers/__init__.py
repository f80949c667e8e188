"""Readers that gpucheck and the Ansible collection share: one implementation of what both read from a host.

They run in gpucheck and, as ``module_utils/readers`` of the collection, on managed hosts. The collection has a symbolic
link to this directory; its build copies the files. Rules, which ``tests/host/readers/test_readers.py`` holds: standard
library and siblings only (relative imports), syntax and library of Python 3.6, nothing is changed on the host.

What both programs read in different ways stays apart, because the questions differ:

- Virtual machine or not. ``gpucheck.host.system`` names the hypervisor for a report. The collection's ``isolation``
  must reject every guest and takes any evidence as sufficient.
- Lists of packages. A check queries the names it needs (0.02 s); the collection reads the complete database, with the
  transactions that were interrupted, and raises where a check returns "unknown".
- Kernel headers. A check reports the directory that DKMS builds with; the collection finds the headers of kernels that
  have no such link yet.
- Host and plan. A check evaluates (verdict, cause, fix); the collection lists actions for its roles, with version locks
  in the form that dnf writes.
"""
