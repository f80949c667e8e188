"""Warnings of libibverbs, which every RDMA program may print, and what ibv_devinfo prints without a device."""

from gpucheck.imports._messages import of_messages

KIND = of_messages(
    "libibverbs",
    "messages of libibverbs",
    ("libibverbs: Warning", "No IB devices found", "Failed to get IB devices"),
    "messages of libibverbs",
    loose=False,
)
