"""What a recording keeps, and that a replay gives the same answers and never makes one up."""

import inspect
import sysconfig
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gpucheck.host.recording import Recording, RecordingHost, ReplayHost, portable
from gpucheck.model import DkmsModule, Host, InstalledKernel, LoaderLibrary, NotRecorded, PackageVersion, Simulation
from tests.fakes import FakeHost, kernel_log
from tests.machines import LOADED, h100, nvswitches, on_bus, reading

NCCL = LoaderLibrary(soname="libnccl.so.2", path="/usr/lib/libnccl.so.2", source="ldconfig")
CUDART = LoaderLibrary(soname="libcudart.so.12", path="/opt/lib/libcudart.so.12", source="LD_LIBRARY_PATH")
FULL = FakeHost(
    simulation_=Simulation(profile="hgx-h100-x8"),
    driver_=LOADED,
    pci_=(*on_bus(h100(0)), *nvswitches(2)),
    nvml_=reading(h100(0)),
    packages_=(PackageVersion(name="libnccl2", version="2.27.3-1+cuda12.9", held=True),),
    python_={"torch": "2.7.1"},
    services_={"nvidia-fabricmanager": "active"},
    files={"/etc/nccl.conf": "NCCL_DEBUG=INFO\n"},
    kernel_log_=kernel_log("NVRM: Xid (PCI:0000:3b:00): 79"),
    environment_={"NCCL_P2P_DISABLE": "1"},
    kernels_=(InstalledKernel(release="5.15.0-113-generic", running=True, headers=True),),
    dkms_=(DkmsModule(name="nvidia", version="580.95.05", state="added"),),
    secure_boot_=True,
    libraries_=(CUDART, NCCL),
    folders={"/dev": ("nvidia0", "nvidiactl")},
)
# One call of each question that has a name in it.
NAMED = {
    "packages": ["libnccl2", "bash"],
    "python_packages": ["torch", "cupy"],
    "services": ["nvidia-fabricmanager", "dcgm"],
    "loader_libraries": ["libnccl", "libcudart", "libcudnn"],
    "read_text": "/etc/nccl.conf",
    "list_names": "/dev",
}
PLAIN = sorted(
    name
    for name, member in vars(Host).items()
    if inspect.isfunction(member) and not name.startswith("_") and name not in NAMED
)


def replay(host=FULL, queries=NAMED):
    recorder = RecordingHost(host)
    for question, words in queries.items():
        getattr(recorder, question)(words)
    return ReplayHost(recorder.recording(version="0.1.0", now="2026-11-21T16:00:00+00:00"))


@pytest.mark.parametrize("question", PLAIN)
def test_every_plain_query_has_the_recorded_result(question):
    """Held for every question that the host door has, including the one that is added next."""
    assert getattr(replay(), question)() == getattr(FULL, question)()


@pytest.mark.parametrize("question", NAMED)
def test_every_named_query_has_the_recorded_result(question):
    """Also the answer that something is not there."""
    assert getattr(replay(), question)(NAMED[question]) == getattr(FULL, question)(NAMED[question])


def test_what_the_host_could_not_look_up_is_not_replayed_as_absent():
    """None of packages and libraries, through the file: not an empty list."""
    blind = replace(FULL, packages_=None, libraries_=None)
    recording = msgspec.json.decode(msgspec.json.encode(replay(blind).recording), type=Recording)
    host = ReplayHost(recording)

    assert (host.packages(["libnccl2"]), host.loader_libraries(["libnccl"])) == (None, None)


def test_a_missing_file_and_folder_were_missing():
    host = replay(queries={"read_text": "/etc/none", "list_names": "/none"})

    assert (host.read_text("/etc/none"), host.list_names("/none")) == (None, None)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("packages", ["libnccl2", "cuda"]),
        ("python_packages", ["numpy"]),
        ("services", ["nvidia-persistenced"]),
        ("loader_libraries", ["libnccl", "libnvrtc"]),
        ("read_text", "/proc/cmdline"),
        ("list_names", "/sys"),
    ],
)
def test_query_that_was_not_recorded_raises(question, words):
    """Neither "not installed" nor "does not exist": the recording does not know."""
    with pytest.raises(NotRecorded, match=r"does not contain"):
        getattr(replay(), question)(words)


def test_names_from_several_questions_are_kept_together():
    recorder = RecordingHost(FULL)
    recorder.loader_libraries(["libnccl"])
    recorder.loader_libraries(["libcudart"])
    recorder.packages(["libnccl2"])
    recorder.packages(["bash"])
    host = ReplayHost(recorder.recording(version="0.1.0", now="now"))

    assert host.loader_libraries(["libnccl", "libcudart"]) == (CUDART, NCCL)
    assert host.loader_libraries(["libnccl"]) == (NCCL,)
    assert len(host.packages(["bash", "libnccl2"])) == 1


def test_paths_that_lie_elsewhere_on_another_machine():
    """The torch of a host is below its interpreter's packages, wherever the recording is replayed."""
    assert portable(f"{sysconfig.get_path('purelib')}/torch/version.py") == "{purelib}/torch/version.py"
    assert portable(f"{Path.home()}/.nccl.conf") == "{home}/.nccl.conf"
    assert portable("/etc/nccl.conf") == "/etc/nccl.conf"
