"""Texts of CUDA, PyTorch and TensorFlow when a call fails: knowledge/messages/cuda-error.yml."""

from gpucheck.imports._messages import of_messages

KIND = of_messages(
    "cuda-error",
    "errors of CUDA, PyTorch or TensorFlow",
    (
        *("CUDA", "cuda", "Cuda", "NVML", "GPU", "nccl", "NCCL", "Dist", "ranks", "onitored", "Driver/library"),
        *("ssertion", "OOM", "heartbeat", "Heartbeat", "Watchdog", "system not yet", "peer access", "PTX", "launch"),
        *("uncorrectable", "capability", "kernel image", "memory", "device", "driver", "remote process", "internal"),
        *(
            "unhandled",
            "operation",
            "collective",
            "killed",
            "exitcode",
            "Signal",
            "SIGKILL",
            "oom",
            "Out Of",
            "(error ",
        ),
        *("cuInit", "Last error", "ystem not yet"),
    ),
    "errors of CUDA and the frameworks above it",
)
