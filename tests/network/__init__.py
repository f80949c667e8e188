"""RDMA devices of a real kernel, in a virtual machine."""
