"""A simulated machine: its profile, its PCI functions, GPUs and links, and how its GPUs reach each other."""

from gpucheck.simulator.machine.machine import (
    REMOTE_GPU,
    REMOTE_SWITCH,
    UPTIME_S,
    Function,
    Kernel,
    Link,
    LoggedMessage,
    Machine,
    Process,
    SimulatedGpu,
    build,
)
