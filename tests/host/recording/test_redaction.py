"""What identifies is gone from a recording, equal things stay equal, and what is evaluated stays as it was."""

import re
import time
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.host.recording.redaction import Pseudonyms, encodable, redacted
from gpucheck.host.recording.redaction._rules import rules, without_secrets
from gpucheck.model import Fabric, Health, RackPlace, System
from tests.fakes import SYSTEM, facts, kernel_log
from tests.host.recording import scanner
from tests.host.recording.formats import FORMATS
from tests.host.recording.test_recording import written
from tests.host.recording.test_redaction_planted import recording, text_of
from tests.machines import LOADED, h100, on_bus, reading
from tests.shared import sampled

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


SCANNER = scanner.rules()
EXAMPLES = 3
PSEUDONYM = re.compile(r"redacted-[0-9a-f]{8}")
# Other rules find the parts of their examples, or they match nothing but text around them.
WITHOUT_EXAMPLE = {
    "airtable-personnal-access-token",
    "facebook-access-token",
    "sidekiq-sensitive-url",
    "slack-webhook-url",
}


@pytest.mark.parametrize("rule", SCANNER, ids=lambda rule: rule.id)
def test_no_rule_of_a_scanner_fires_on_redacted_text(rule):
    """Texts that this rule reports are not reported by any rule afterwards."""
    for text in rule.examples(EXAMPLES):
        shown = PSEUDONYM.sub("x", without_secrets(text, lambda _: "redacted-0123abcd"))

        assert [one.id for one in SCANNER if one.fires(shown)] == [], (text, shown)


def test_the_scanner_has_an_example_for_nearly_every_rule():
    assert {rule.id for rule in SCANNER if not list(rule.examples(1))} == WITHOUT_EXAMPLE


@pytest.mark.parametrize(("text", "hidden"), FORMATS)
def test_names_in_formats_of_logs_do_not_stay(text, hidden):
    after = text_of("log", redacted(recording("log", text), Pseudonyms(b"salt"))).lower()

    assert all(one.lower() in text.lower() for one in hidden)
    assert [one for one in hidden if one.lower() in after] == []


@pytest.mark.parametrize("section", ["shapes", "following", "logs", "hardware"])
def test_every_match_of_a_rule_holds_one_of_its_words(section):
    """Or it is not searched for."""
    for words, pattern in rules(section):
        one = scanner.Rule(pattern.pattern, (), pattern, 0)
        examples = list(one.examples(20))

        assert all(any(word in text.lower() for word in words) for text in examples), (words, pattern.pattern)


NOISE_S = 0.02
SIZE = 1 << 12
UNITS = (
    *(
        "a.",
        "a-",
        "a@",
        "a:",
        "a://a:",
        "key=",
        'key="',
        '\\"',
        "[1-2],",
        "0:",
        "0000:",
        "token ",
        "mysql a -p",
        "ldap -w ",
    ),
    *("user ", "Nodes a1,", "for a from ", "su for a by ", "pod a/", "dc=a,", "serial:  ", "nfs a:/b ", "guid "),
    *(
        "-----BEGIN PRIVATE KEY",
        "adafruit ",
        "kind: secret data: ",
        "A_HOST=",
        "\\",
        " ",
        "search a ",
        "xn--a.",
        "a-gpu-1",
    ),
)


@pytest.mark.parametrize("unit", sampled(UNITS, lambda number, _: number % 3 == 0))
def test_a_long_line_takes_linear_time(unit):
    """Four times the line takes less than eight times the processor time."""

    def seconds(size):
        text = (unit * size)[:size]
        start = time.process_time()
        redacted(recording("log", text), Pseudonyms(b"salt"))
        return time.process_time() - start

    short = max(min(seconds(SIZE), seconds(SIZE)), NOISE_S)

    assert seconds(4 * SIZE) < 8 * short
