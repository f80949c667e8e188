"""The driver failed to initialise one GPU: it is on the PCI bus, and NVML does not count it."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int) -> None:
    machine.gpu(gpu).visible = False
    machine.gpu(gpu).open_error = "EIO"
    bus_id = machine.gpu(gpu).function.bus_id
    machine.log(f"NVRM: GPU {bus_id}: RmInitAdapter failed! (0x62:0x55:2860)", age_s=3600)
    machine.log(f"NVRM: GPU {bus_id}: rm_init_adapter failed, device minor number {gpu}", age_s=3600)


FAULT = Fault("gpu-missing", "a GPU is on the PCI bus but NVML does not count it", _apply)
