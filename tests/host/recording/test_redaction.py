"""What identifies is gone from a recording, equal things stay equal, and what is evaluated stays as it was."""

import re
from typing import cast

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.host.recording.redaction import Pseudonyms, encodable, redacted
from gpucheck.model import Fabric, Health, RackPlace, System
from tests.fakes import SYSTEM, facts, kernel_log
from tests.host.recording.test_recording import written
from tests.machines import LOADED, h100, on_bus, reading

UUID = "GPU-5ec2f213-af40-cb06-a2d9-42946bc64825"
SERIAL, CHASSIS = "1650123456789", "1820000000001"
RACK = RackPlace(chassis_serial=CHASSIS, slot=14, tray=4, host_id=1, module_id=2)
SECRETS = (
    "node07",
    "example.com",
    "5ec2f213",
    SERIAL,
    CHASSIS,
    "0c:42:a1",
    "0c42a1",
    "10.4.17.9",
    "fe80::",
    "alice",
    "ec0d",
)
GPU = msgspec.structs.replace(h100(0), uuid=UUID, health=Health(serial=SERIAL, rack=RACK))
HOST = facts(
    system=msgspec.structs.replace(SYSTEM, hostname="node07.example.com"),
    driver=LOADED,
    pci=on_bus(GPU),
    nvml=reading(GPU),
    kernel_log=kernel_log(
        f"NVRM: GPU 0000:3b:00.0 {UUID} on node07 failed, serial {SERIAL}",
        "mlx5_core 0000:5e:00.0 enx0c42a1deadbe: hardware address 0c:42:a1:de:ad:be, peer 10.4.17.9, fe80::1",
        "mlx5_core 0000:5e:00.0: node guid 0c42:a103:00ec:ec0d",
        "pci 0000:3b:00.0: [10de:2330] type 00, driver 580.95.05, mlx5 127.0.0.1",
    ),
    environment={"LD_LIBRARY_PATH": "/home/alice/lib:/opt/lib", "MASTER_ADDR": "10.4.17.9"},
    files={
        "/proc/cmdline": "root=UUID=5ec2f213-af40-cb06-a2d9-42946bc64825 ip=10.4.17.9",
        "/etc/gpucheck/stack.json": '{"cudnn": "9.10.2.21"}',
        "/home/alice/.nccl.conf": "NCCL_HOSTID=node07\n",
    },
)


def gpu_of(recording):
    """Its only GPU."""
    return recording.nvml.gpus[0]


def recorded():
    recorder = written(HOST, ())
    return msgspec.structs.replace(recorder, texts=dict(HOST.texts))


def words(recording):
    return msgspec.json.encode(recording).decode()


def test_nothing_that_identifies_is_left():
    before, after = words(recorded()), words(redacted(recorded()))

    assert all(secret in before for secret in SECRETS)
    assert [secret for secret in SECRETS if secret in after] == []


def test_equal_things_stay_equal():
    after = redacted(recorded())
    uuid, texts = gpu_of(after).uuid, cast("dict[str, str]", after.texts)
    first = after.kernel_log.lines[0].text

    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)
    assert uuid in first
    assert gpu_of(after).health.serial in first
    assert uuid.removeprefix("GPU-") in texts["/proc/cmdline"]
    assert after.system.hostname.partition(".")[0] in first
    assert after.environment["MASTER_ADDR"] in texts["/proc/cmdline"]
    assert after.environment["MASTER_ADDR"] in after.kernel_log.lines[1].text


def test_what_is_judged_stays():
    """Versions with four numbers are no addresses, PCI ids no hardware addresses."""
    before, after = recorded(), redacted(recorded())

    assert (after.pci, after.driver, after.packages) == (before.pci, before.driver, before.packages)
    assert after.texts["/etc/gpucheck/stack.json"] == before.texts["/etc/gpucheck/stack.json"]
    assert after.kernel_log.lines[3] == before.kernel_log.lines[3]
    assert after.environment["LD_LIBRARY_PATH"].endswith(":/opt/lib")
    assert after.redacted


def test_the_uuid_of_no_rack_stays_zero():
    nothing = "00000000-0000-0000-0000-000000000000"
    gpu = msgspec.structs.replace(GPU, fabric=Fabric(state="completed", status=0, cluster_uuid=nothing))
    after = redacted(written(facts(nvml=reading(gpu)), ()))

    assert gpu_of(after).fabric.cluster_uuid == nothing


def test_two_recordings_share_no_hash():
    """A plain hash of an address or a serial number is found by trying them all."""
    assert redacted(recorded()).system.hostname != redacted(recorded()).system.hostname
    assert redacted(recorded(), Pseudonyms(b"salt")) == redacted(recorded(), Pseudonyms(b"salt"))


@given(st.sampled_from(["completed", "open", "gpu", "proprietary", "switch", "PIX", "nvidia", "a.b", ""]) | st.text())
def test_a_host_may_be_called_anything(name):
    """Also by a word that means something in a recording."""
    system = System(
        hostname=name, os_id="ubuntu", os_version="22.04", os_name="Ubuntu", arch="x86_64", kernel="5.15.0-1-generic"
    )
    host = facts(system=system, driver=LOADED, pci=on_bus(GPU), nvml=reading(GPU))
    after = redacted(encodable(written(host, ())))

    assert (after.pci, after.driver) == (on_bus(GPU), LOADED)
    assert gpu_of(after).fabric == GPU.fabric


def test_names_that_are_no_unicode_are_kept_as_far_as_they_are():
    host = facts(environment={"LD_LIBRARY_PATH": "/opt/\udcff/lib"})

    assert encodable(written(host, ())).environment == {"LD_LIBRARY_PATH": "/opt/?/lib"}
