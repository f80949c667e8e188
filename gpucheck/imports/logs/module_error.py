"""What modprobe, DKMS and the installer print when the NVIDIA kernel module cannot be built or loaded.

Lines that the kernel itself logs are read as a kernel log.
"""

from gpucheck.imports._messages import of_messages

KIND = of_messages(
    "module-error",
    "errors of modprobe, DKMS or the NVIDIA installer",
    ("nvidia", "NVIDIA", "Nouveau", "nouveau", "DKMS", "dkms", "headers", "Error!", "ompiler", "gcc", "API "),
    "error messages of modprobe, DKMS and the NVIDIA installer",
)
