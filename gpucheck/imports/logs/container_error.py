"""What the container runtime and the Kubernetes device plugin print when a container gets no GPU."""

from gpucheck.imports._messages import of_messages

KIND = of_messages(
    "container-error",
    "errors of the NVIDIA container toolkit or the Kubernetes device plugin",
    ("nvidia", "NVML", "capabilities: [[gpu]]", "CDI", "nvc.c:", "nvc_", "rpc.c:", "libcuda.so.1"),
    "error messages of container runtimes",
)
