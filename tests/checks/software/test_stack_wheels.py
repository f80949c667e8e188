"""The framework wheels of the stack check: what they were built for, against the GPUs, the driver and each other."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.software import stack
from gpucheck.checks.software._wheels import Imported, more, read_wheels
from gpucheck.model import DriverState, Gpu, Verdict
from tests.fakes import NO_DRIVER, facts
from tests.machines import LOADED, h100, on_bus, p100, reading

VERSION_FILE, INFO_FILE = "{purelib}/torch/version.py", "{purelib}/tensorflow/python/platform/build_info.py"
PIN_FILE = "{purelib}/torch-2.14.1+cu126.dist-info/METADATA"
B200 = Gpu(index=0, name="B200", uuid="x", pci_bus_id="0000:9b:00.0", device_id="2901")
ODD = replace(B200, name="odd", device_id="2cff", compute_capability="12.0")  # in no table


def libraries(family, cudnn, nccl):
    return {f"nvidia-cudnn-{family}": cudnn, f"nvidia-nccl-{family}": nccl}


TORCH_126 = {"torch": "2.14.1+cu126", **libraries("cu12", "9.10.2.21", "2.29.3")}
TORCH_130 = {"torch": "2.15.0", **libraries("cu13", "9.26.0.51", "2.30.7")}
# tensorflow[and-cuda] asks for a range, and pip fills it with the newest.
TENSORFLOW = {"tensorflow": "2.21.0", **libraries("cu12", "9.28.0.42", "2.32.3")}
# PTX of 8.0 at most: translated for Hopper, seen to fail on Blackwell.
TENSORFLOW_PTX = {"tensorflow": "2.15.1", **libraries("cu12", "8.9.4.25", "2.16.5")}
INFO = "build_info = {'cuda_version': '12.5.1', 'cuda_compute_capabilities': ['sm_60', 'compute_90'], }\n"
# The last line is in the description, which is no header.
PINS = "Name: torch\nRequires-Dist: nvidia-nccl-cu12==2.29.9; platform_system == 'Linux'\n\n"
PINS += "Requires-Dist: nvidia-nccl-cu12==1\n"
IMPORTED = Imported(
    version="2.99.0",
    cuda="12.6",
    cudnn="9.10.2",
    nccl="2.29.3",
    arch_list=("sm_50", "sm_60", "sm_90a"),
    mapped=("/opt/venv/site/nvidia/cudnn/lib/libcudnn.so.9",),
    folder="/opt/venv/site",
)
# LD_LIBRARY_PATH put the host's cuDNN before the wheel's own.
SHADOWED = replace(IMPORTED, mapped=("/usr/lib/x86_64-linux-gnu/libcudnn.so.9",))


def wheel_findings(python, *gpus, files=None, imported=None, driver=LOADED, nvml=NO_DRIVER):
    """Findings about wheels only: there is no plan on this host."""
    host = facts(python=python, pci=on_bus(*gpus), driver=driver, files=files, nvml=nvml)
    return [f for f in stack.evaluate(host, imported=imported) if f.code != "software.no-plan"]


@pytest.mark.parametrize(
    ("python", "gpus", "more", "passes", "found"),
    [
        # The plain wheel installs, imports, and cannot run a kernel on Pascal; the build of the index can.
        (
            {"torch": "2.14.1", **libraries("cu13", "9.24.0.43", "2.30.7")},
            [p100(0)],
            {},
            2,
            ["no-code-for-gpu", "cudnn-too-new"],
        ),
        (TORCH_126, [p100(0), h100(1)], {}, 4, []),
        # A CPU build asks nothing of the GPUs. TensorFlow's has another name.
        ({"torch": "2.14.1+cpu"}, [p100(0)], {}, 0, []),
        ({"torch": "2.14.1"}, [p100(0)], {"files": {VERSION_FILE: "cuda = None\n"}}, 0, []),
        ({"tensorflow-cpu": "2.21.0"}, [p100(0)], {}, 0, []),
        ({"tensorflow": "2.21.0"}, [p100(0)], {"files": {INFO_FILE: "build_info = {'is_cuda_build': False}\n"}}, 0, []),
        # The newest cuDNN left Pascal behind.
        (TENSORFLOW, [p100(0)], {}, 3, ["cudnn-too-new"]),
        (TENSORFLOW, [h100(0)], {}, 4, []),
        # The pin of the wheel's own METADATA outranks the tables.
        (TORCH_126, [h100(0)], {"files": {PIN_FILE: PINS}}, 3, ["library-version-differs"]),
        ({"torch": "2.14.1+cu126", "nvidia-nccl-cu12": "2.29.3"}, [h100(0)], {}, 3, ["library-not-installed"]),
        # cu12 and cu13 of one library share their paths.
        ({"nvidia-cudnn-cu12": "9.10.2.21", "nvidia-cudnn-cu13": "9.24.0.43"}, [], {}, 0, ["wheels-overwritten"]),
        # One floor for each major; without a module there is nothing to compare.
        (TORCH_130, [h100(0)], {"driver": DriverState(loaded_version="570.211.01")}, 3, ["driver-below-floor"]),
        (TORCH_130, [h100(0)], {"driver": DriverState()}, 3, []),
        # A build that no table knows is not guessed; its own file names at least its CUDA.
        ({"torch": "2.99.0"}, [h100(0)], {}, 0, ["build-unknown"]),
        ({"torch": "2.99.0"}, [h100(0)], {"files": {VERSION_FILE: "cuda: str = '13.0'\n"}}, 1, ["code-list-unknown"]),
        ({"tensorflow": "2.99.0"}, [p100(0), h100(1)], {"files": {INFO_FILE: INFO}}, 2, []),
        ({"tensorflow": "2.21.0"}, [h100(0)], {}, 0, ["tensorflow-without-cuda"]),
        (TENSORFLOW_PTX, [h100(0)], {}, 4, []),
        (TENSORFLOW_PTX, [B200], {}, 3, ["no-code-for-gpu"]),
        # A GPU that the tables do not contain, with and without NVML.
        (TORCH_126, [ODD], {}, 3, ["capability-unknown"]),
        (TORCH_126, [ODD], {"nvml": reading(ODD)}, 3, ["no-code-for-gpu"]),
        # What torch reports of itself outranks the tables.
        ({"torch": "2.99.0"}, [p100(0)], {"imported": IMPORTED}, 3, []),
        ({"torch": "2.99.0"}, [p100(0)], {"imported": SHADOWED}, 2, ["torch-libraries-overridden"]),
        (TORCH_126, [p100(0)], {"imported": Imported(error="no answer in 60 s")}, 4, ["torch-not-imported"]),
        ({"torch": "2.13.0+cpu"}, [], {"imported": Imported(version="2.13.0+cpu")}, 0, ["torch-without-cuda"]),
    ],
)
def test_wheels_of_a_host(python, gpus, more, passes, found):
    findings = wheel_findings(python, *gpus, **more)

    assert [f.code for f in findings if f.code] == [f"software.{code}" for code in found]
    assert sum(f.verdict is Verdict.PASS for f in findings) == passes


def test_the_fix_names_a_build_that_fits():
    """The last cuDNN with code for this GPU, and the extra that brings the CUDA packages."""
    (old,) = [f for f in wheel_findings(TENSORFLOW, p100(0)) if f.code]
    (bare,) = wheel_findings({"tensorflow": "2.21.0"}, h100(0))

    assert (old.subject, old.steps[-1].command) == ("gpu:0000:03:00.0", "pip install nvidia-cudnn-cu12==9.10.2.21")
    assert bare.steps[-1].command == "pip install 'tensorflow[and-cuda]==2.21.0'"
    assert "nvidia-cudnn-cu12" in bare.wanted


def test_a_wheel_without_its_cuda_part_is_the_framework():
    wheels, _ = read_wheels(facts(python={"tensorflow-cpu": "2.21.0"}))

    assert [(wheel.name, wheel.version) for wheel in wheels] == [("tensorflow", "2.21.0")]


def test_what_the_wheels_need_is_read():
    """Their files; and NVML only for a GPU that the tables do not contain, and only if there is a wheel."""
    python = {"torch": "2.14.1+cu126", "tensorflow-cpu": "2.21.0"}
    files = [
        f"text:{VERSION_FILE}",
        f"text:{PIN_FILE}",
        f"text:{INFO_FILE}",
        "text:{purelib}/tensorflow_cpu-2.21.0.dist-info/METADATA",
    ]

    assert list(more(facts(python=python, pci=on_bus(p100(0))))) == files
    assert list(more(facts(python=python, pci=on_bus(ODD)))) == [*files, "nvml"]
    assert list(more(facts(pci=on_bus(ODD)))) == []
