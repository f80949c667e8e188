"""What nvidia-smi prints in place of its table, in one line."""

from gpucheck.imports._messages import of_messages

KIND = of_messages(
    "nvidia-smi",
    "an error message of nvidia-smi",
    ("NVML", "NVIDIA-SMI", "nvidia-smi", "device handle", "No devices were found", "infoROM", "vlink"),
    "messages of nvidia-smi",
    loose=False,  # exact wordings, some of which looser kinds know from other programs
)
