"""What a recording keeps, and that it gives the same answers as the host and never makes one up."""

import gzip

import msgspec
import pytest

from gpucheck.foreign import UnreadableInput
from gpucheck.host.recording import decode, encode, recording
from gpucheck.model import DkmsModule, InstalledKernel, LoaderLibrary, NotRecorded, PackageVersion, Simulation
from gpucheck.model.facts import MEASURED, Facts
from tests.checks.judging import exactly
from tests.fakes import facts, kernel_log
from tests.machines import LOADED, h100, nvswitches, on_bus, reading

NCCL = LoaderLibrary(soname="libnccl.so.2", path="/usr/lib/libnccl.so.2", source="ldconfig")
CUDART = LoaderLibrary(soname="libcudart.so.12", path="/opt/lib/libcudart.so.12", source="LD_LIBRARY_PATH")
FULL = facts(
    simulation=Simulation(profile="hgx-h100-x8"),
    driver=LOADED,
    pci=(*on_bus(h100(0)), *nvswitches(2)),
    nvml=reading(h100(0)),
    packages=(PackageVersion(name="libnccl2", version="2.27.3-1+cuda12.9", held=True),),
    python={"torch": "2.7.1"},
    services={"nvidia-fabricmanager": "active"},
    files={"/etc/nccl.conf": "NCCL_DEBUG=INFO\n"},
    kernel_log=kernel_log("NVRM: Xid (PCI:0000:3b:00): 79"),
    environment={"NCCL_P2P_DISABLE": "1"},
    kernels=(InstalledKernel(release="5.15.0-113-generic", running=True, headers=True),),
    dkms=(DkmsModule(name="nvidia", version="580.95.05", state="added"),),
    secure_boot=True,
    libraries=(CUDART, NCCL),
    folders={"/dev": ("nvidia0", "nvidiactl")},
)
ASKED = (name for name in Facts.__struct_fields__ if getattr(Facts(), name) is msgspec.UNSET)
PARTS = tuple(name for name in ASKED if name not in MEASURED)
# Of each kind one that is there and one that is not.
NAMED = (
    *("package:libnccl2", "package:bash", "python:torch", "python:cupy"),
    *("service:nvidia-fabricmanager", "service:dcgm"),
    *("text:/etc/nccl.conf", "text:/etc/none", "folder:/dev", "folder:/none", "library:libnccl", "library:libcudart"),
)


def written(host=FULL, needs=NAMED):
    """A recording of these needs and of every part."""
    return recording(exactly((*PARTS, *needs), host), version="0.1.0", now="2026-11-21T16:00:00+00:00")


def test_every_answer_comes_back_from_the_file():
    """Also the answer that something is not there."""
    again = decode(encode(written()), "x")

    assert again == written()
    assert again.read(*PARTS, *NAMED) is again
    assert again.packages == {"libnccl2": FULL.packages["libnccl2"], "bash": None}


def test_what_the_host_could_not_look_up_is_not_replayed_as_absent():
    """None of packages and libraries, through the file: not an empty list."""
    blind = msgspec.structs.replace(FULL, packages=None, libraries=None)
    again = decode(encode(written(blind)), "x")

    assert (again.read("package:cuda").packages, again.read("library:libnccl").libraries) == (None, None)


def test_the_header_is_first_in_the_file():
    names = list(msgspec.json.decode(gzip.decompress(encode(written()))))

    assert names[:6] == ["schema", "gpucheck", "recorded", "redacted", "differences", "system"]


@pytest.mark.parametrize(
    "need",
    ["package:cuda", "python:numpy", "service:x", "library:libnvrtc", "text:/proc/cmdline", "folder:/sys", "pci"],
)
def test_a_need_that_was_not_recorded_raises(need):
    """Neither "not installed" nor "does not exist": the recording does not know."""
    with pytest.raises(NotRecorded, match=r"the recording does not contain .*"):
        msgspec.structs.replace(written(), pci=msgspec.UNSET).read("system", need)


RECORDING = written()
WHOLE = encode(RECORDING)


def document(**changes):
    """The recording's JSON with other keys."""
    return msgspec.json.encode(msgspec.to_builtins(RECORDING) | changes)


def test_equal_recordings_are_equal_files():
    assert encode(RECORDING) == WHOLE


def test_a_recording_that_someone_unpacked_is_read():
    assert decode(gzip.decompress(WHOLE), "x") == RECORDING


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"\x00\x01\x02 binary", "neither gzip nor JSON"),
        ("GPU0\tGPU1\n".encode("utf-16"), "neither gzip nor JSON"),
        (WHOLE[:-200], "cut off"),
        (WHOLE[:2], "cut off"),
        (WHOLE[:100] + b"\xff" * 50 + WHOLE[150:], "damaged"),
        (WHOLE + b"more", "damaged: Not a gzipped file"),
        (gzip.compress(b""), "damaged"),
        (gzip.compress("{}".encode("utf-16")), "damaged"),
        (gzip.compress(b"[" * 100_000), "damaged"),
        (b"{" + b'"a":[' * 100_000, "damaged"),
        (b"{}", "it states no schema"),
        (b'{"schema": 7}', "damaged: Expected `str`"),
        (document(schema="gpucheck.report/1"), "a 'gpucheck.report/1', not a recording"),
        (document(schema="gpucheck.recording/2"), "a gpucheck.recording/2, and this gpucheck reads gpucheck.reco"),
        (document(pci="none"), "damaged: Expected `array`, got `str` - at `$.pci`"),
        (document(nvml={"type": "rumour"}), "damaged"),
        (document(recorded="yesterday"), "damaged: Invalid isoformat string: 'yesterday'"),
    ],
    ids=range(18),
)
def test_file_that_is_not_a_recording_is_one_sentence(content, why):
    with pytest.raises(UnreadableInput) as problem:
        decode(content, "x.rec")

    assert why in str(problem.value)
    assert str(problem.value).startswith("x.rec: ")
    assert "\n" not in str(problem.value)
