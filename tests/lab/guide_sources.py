"""Source files as a person has them who followed NVIDIA's installation guide, with the lab's mirror and its key."""

from tests.lab.e2e import on_host

PATHS = {
    "lab-apt": "/etc/apt/sources.list.d/cuda-ubuntu2204-x86_64.list",
    "lab-dnf": "/etc/yum.repos.d/cuda-rhel9.repo",
}
# From the planned files of a provisioned host.
WRITE = {
    "lab-apt": """cp /usr/share/keyrings/nvidia-cuda.gpg /usr/share/keyrings/cuda-archive-keyring.gpg
sed 's/nvidia-cuda.gpg/cuda-archive-keyring.gpg/' /etc/apt/sources.list.d/nvidia-cuda.list >""",
    "lab-dnf": "sed '/repo_gpgcheck/d' /etc/yum.repos.d/cuda-rhel9-x86_64.repo >",
}


def write() -> dict[str, str]:
    """Put them on provisioned hosts, beside the planned ones; their contents by host."""
    for host, path in PATHS.items():
        on_host(host, "sh", "-c", f"{WRITE[host]} {path}")
    return {host: on_host(host, "cat", path) for host, path in PATHS.items()}
