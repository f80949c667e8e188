"""The GPUs of a recording: a known model, or a model that only the profile has."""

from collections import Counter
from collections.abc import Iterable

from gpucheck.model import Gpu, PciDevice
from gpucheck.simulator.data import HERE
from gpucheck.simulator.machine.gpu_model import Fabric, GpuModel, NvLinkPorts, Thermal, gpu_model

MIB = 1 << 20
# Compute capability -> NVML: nvmlDeviceArchitecture_t; the highest that is not above counts
ARCHITECTURES = {(3, 0): 2, (5, 0): 3, (6, 0): 4, (7, 0): 5, (7, 5): 6, (8, 0): 7, (8, 9): 8, (9, 0): 9, (10, 0): 10}
PAGES_UNTIL = 6  # Turing: up to it ECC retires pages, later it remaps rows
BRAND_NVIDIA, BRAND_GEFORCE = 14, 5
P2P_OK, P2P_GPU_NOT_SUPPORTED = 0, 2  # nvmlGpuP2PStatus_t
RAW_SPEED_MB_S = {1: 20000, 2: 25781, 3: 25781, 4: 25000, 5: 14062, 6: 26562, 7: 53125}  # by NVML's NVLink version


class RecordedGpus:
    """models: bus id -> name of a model. own: those that only this profile has. summary: the GPUs as text."""

    def __init__(self, functions: Iterable[PciDevice], reported: Iterable[Gpu]) -> None:
        known_models = {name: gpu_model(name) for name in sorted(path.stem for path in (HERE / "gpus").glob("*.yml"))}
        by_bus = {gpu.pci_bus_id: gpu for gpu in reported}
        self.models: dict[str, str] = {}
        self.own: dict[str, GpuModel] = {}
        for function in functions:
            gpu = by_bus.get(function.bus_id)
            self.models[function.bus_id] = _known_model(function, gpu, known_models) or self._own(function, gpu)
        known = known_models | self.own
        counts = Counter(known[name].name for name in self.models.values())
        self.summary = ", ".join(f"{count} x {name}" for name, count in counts.items()) or "no GPU"

    def _own(self, function: PciDevice, gpu: Gpu | None) -> str:
        if gpu is None:
            raise ValueError(
                f"GPU {function.bus_id} (10de:{function.device_id}) is not a known GPU model, "
                "and NVML reported nothing about it. Record the machine again with its driver running"
            )
        model = _model(function, gpu)
        name = "-".join(gpu.name.lower().replace("/", " ").split())
        while self.own.get(name, model) != model:
            name += "-2"
        self.own[name] = model
        return name


def _known_model(function: PciDevice, gpu: Gpu | None, known_models: dict[str, GpuModel]) -> str | None:
    """Without NVML the device id decides; with it name, memory, BAR 1 and links have to be the same too."""
    for name, model in known_models.items():
        if model.device_id != function.device_id:
            continue
        if gpu is None:
            return name
        links = model.nvlink.links if model.nvlink else 0
        seen = (gpu.name, (gpu.memory_bytes or 0) // MIB, (gpu.bar1_bytes or 0) // MIB, len(gpu.nvlinks))
        if seen == (model.name, model.memory_mib, model.bar1_mib, links):
            return name
    return None


def _model(function: PciDevice, gpu: Gpu) -> GpuModel:
    major, _, minor = (gpu.compute_capability or "0.0").partition(".")
    capability = (int(major), int(minor or 0))
    architecture = max((v for k, v in ARCHITECTURES.items() if k <= capability), default=2)
    health, limit = gpu.health, int(gpu.health.power_default_w or gpu.health.power_limit_w or 300)
    geforce = "GeForce" in gpu.name
    return GpuModel(
        name=gpu.name,
        source="a recording",
        unsourced=("subsystem_id", "brand", "clocks_mhz"),
        device_id=gpu.device_id,
        subsystem_id="0000",
        class_id="030000" if function.class_id == "030000" else "030200",
        compute_capability=f"{capability[0]}.{capability[1]}",
        architecture=architecture,
        brand=BRAND_GEFORCE if geforce else BRAND_NVIDIA,
        memory_mib=(gpu.memory_bytes or 0) // MIB,
        bar1_mib=(gpu.bar1_bytes or function.bar1_bytes or 0) // MIB,
        generation=gpu.pcie.device_max_generation or function.link.device_max_generation or 1,
        width=function.link.max_width or gpu.pcie.max_width or 1,
        power_limit_w=limit,
        power_range_w=(int(health.power_min_w or limit), int(health.power_max_w or limit)),
        thermal=Thermal(shutdown=health.temperature_shutdown_c, slowdown=health.temperature_slowdown_c),
        clocks_mhz=(health.max_sm_clock_mhz or 1000, health.max_sm_clock_mhz or 1000),
        nvlink=_nvlink(gpu),
        fabric=_fabric(gpu),
        ecc=health.ecc is not None,
        ecc_enabled=bool(health.ecc),
        mig=health.mig is not None,
        row_remap=health.row_remap is not None,
        retired_pages=health.retired_pages is not None or (health.ecc is not None and architecture <= PAGES_UNTIL),
        display=geforce,
        pcie_p2p=P2P_GPU_NOT_SUPPORTED if geforce else P2P_OK,
    )


def _nvlink(gpu: Gpu) -> NvLinkPorts | None:
    if not gpu.nvlinks:
        return None
    version = next((link.version for link in gpu.nvlinks if link.version is not None), 1)
    speed = max((link.speed_mb_s or 0 for link in gpu.nvlinks), default=0)
    return NvLinkPorts(links=len(gpu.nvlinks), version=version, speed_mb_s=speed or RAW_SPEED_MB_S.get(version, 25000))


def _fabric(gpu: Gpu) -> Fabric | None:
    if gpu.fabric is None or gpu.fabric.state == "not-supported":
        return None
    return Fabric(health_mask=gpu.fabric.health_mask or 0)
