"""The preflight check of NVSentinel: exit status, health events, and the container that its webhook makes."""

import importlib.util
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import kubernetes_validate
import msgspec
import pytest
import yaml
from click.testing import CliRunner

from gpucheck.cli import cli
from gpucheck.knowledge.actions import actions
from gpucheck.model import Report

PAGES = Path(__file__).parents[2] / "docs" / "integrations" / "kubernetes"
SCRIPT = PAGES / "gpucheck_preflight.py"
ENVIRONMENT = {"NODE_NAME": "node07", "PLATFORM_CONNECTOR_SOCKET": "unix:///var/run/nvsentinel.sock"}
# https://github.com/NVIDIA/NVSentinel data-models/protobufs/health_event.proto: fields of HealthEvent.
FIELDS = {
    1: "version", 2: "agent", 3: "componentClass", 4: "checkName", 5: "isFatal", 6: "isHealthy", 7: "message",
    8: "recommendedAction", 9: "errorCode", 10: "entitiesImpacted", 12: "generatedTimestamp", 13: "nodeName",
    16: "processingStrategy",
}  # fmt: skip

specification = importlib.util.spec_from_file_location("gpucheck_preflight", SCRIPT)
assert specification is not None
assert specification.loader is not None
preflight = importlib.util.module_from_spec(specification)
specification.loader.exec_module(preflight)


@cache
def report(profile, *faults, simulated=False):
    """What gpucheck verify reports about a simulated machine, as that of a real one."""
    words = ["--simulate", profile, *(word for fault in faults for word in ("--fault", fault))]
    done = CliRunner().invoke(cli, ["verify", *words, "--only", preflight.STEPS, "--format", "json"])
    return msgspec.structs.replace(msgspec.json.decode(done.stdout, type=Report), simulated=simulated)


def decoded(message):
    """Field number -> values: a reader of its own for protobuf's wire format."""
    found, place = {}, 0

    def number():
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            value, place, shift = value | (byte & 127) << shift, place + 1, shift + 7
            if byte < 128:
                return value

    while place < len(message):
        key = number()
        if key & 7 == 0:
            value = number()
        else:
            assert key & 7 == 2
            size = number()
            value, place = message[place : place + size], place + size
        found.setdefault(key >> 3, []).append(value)
    return found


def checked(monkeypatch, made, sent=None, problem=None, **environment):
    """Exit status of a run with this report. sent: gets the events."""
    monkeypatch.setattr(preflight, "verified", lambda options: made)

    def sender(socket, events):
        assert socket == "unix:///var/run/nvsentinel.sock"
        if sent is not None:
            sent.extend({FIELDS[key]: value for key, value in decoded(one).items()} for one in events)
        return problem

    return preflight.main([], ENVIRONMENT | environment, sender)


def test_a_healthy_pod_starts_and_clears_the_condition(monkeypatch):
    sent = []

    assert checked(monkeypatch, report("hgx-h100-x8"), sent) == 0
    (event,) = sent
    assert (event["isHealthy"], event["nodeName"], event["processingStrategy"]) == ([1], [b"node07"], [1])
    assert not event.keys() & {"isFatal", "recommendedAction", "errorCode", "entitiesImpacted"}


def test_a_failure_holds_the_pod_back_and_names_gpu_and_action(monkeypatch):
    sent, made = [], report("hgx-h100-x8", "nvlink-down:gpu=2,link=3")

    assert checked(monkeypatch, made, sent) == 1
    (event,) = sent
    (failed,) = preflight.failures(made)
    assert (event["isFatal"], event["errorCode"], event["recommendedAction"]) == ([1], [b"nvlink-down"], [2])
    assert "isHealthy" not in event
    assert failed.action == "reset-gpu"  # COMPONENT_RESET is 2
    assert [decoded(one) for one in event["entitiesImpacted"]] == [
        {1: [b"PCI"], 2: [b"0000:4c:00.0"]},
        {1: [b"GPU_UUID"], 2: [failed.gpu_uuid.encode()]},
    ]
    assert b"\n" not in event["message"][0]


@pytest.mark.parametrize("environment", [{"PROCESSING_STRATEGY": "STORE_ONLY"}, {}], ids=["store only", "simulated"])
def test_what_is_only_stored_holds_no_pod_back(monkeypatch, environment):
    sent = []
    made = report("hgx-h100-x8", "nvlink-down:gpu=2,link=3", simulated=not environment)

    assert checked(monkeypatch, made, sent, **environment) == 0
    assert [event["processingStrategy"] for event in sent] == [[2]]
    assert environment or sent[0]["message"][0].startswith(b"SIMULATED: ")


def test_unknown_is_not_a_pass_and_accuses_nobody(monkeypatch, capsys):
    sent = []

    assert checked(monkeypatch, report("no-gpu"), sent) == 2
    assert sent == []
    assert "UNKNOWN, which is not a pass" in capsys.readouterr().err


def test_a_warning_does_not_hold_the_pod_back(monkeypatch, capsys):
    made = report("hgx-h100-x8", "clock-limit:mhz=900")

    assert made.verdict.value == "warn"
    assert checked(monkeypatch, made) == 0
    assert "WARN clock-limit" in capsys.readouterr().err


def test_an_event_that_is_not_sent_is_no_pass(monkeypatch):
    assert checked(monkeypatch, report("hgx-h100-x8", "nvlink-down:gpu=2,link=3"), problem="no socket") == 3
    assert checked(monkeypatch, report("hgx-h100-x8"), problem="no socket") == 0


@pytest.mark.parametrize("name", ["NODE_NAME", "PLATFORM_CONNECTOR_SOCKET"])
def test_a_missing_variable_is_wrong_usage(name, capsys):
    assert preflight.main([], {key: value for key, value in ENVIRONMENT.items() if key != name}) == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("exit 70", "exit status 70"),
        ("echo '{'", "no verdict"),
        ("kill -9 $$", "exit status -9"),
        ("exit 127", "exit status 127"),
    ],
)
def test_a_gpucheck_that_breaks_gives_no_verdict(answer, reason, tmp_path):
    program = tmp_path / "gpucheck"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    environment = {**ENVIRONMENT, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_every_action_has_its_number():
    names = {name for meaning in actions().values() for name in (meaning.nvsentinel, meaning.nvsentinel_vm)}

    assert names <= preflight.ACTIONS.keys()


def test_a_real_grpc_server_gets_the_event(tmp_path):
    grpc = pytest.importorskip("grpc")
    got = []
    handler = grpc.method_handlers_generic_handler(
        "datamodels.PlatformConnector",
        {"HealthEventOccurredV1": grpc.unary_unary_rpc_method_handler(lambda message, _: got.append(message) or b"")},
    )
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((handler,))
    address = f"unix://{tmp_path}/connector.sock"
    server.add_insecure_port(address)
    server.start()
    try:
        assert preflight.send(address, [b"\x08\x01"]) is None
    finally:
        server.stop(0)
    assert [decoded(message) for message in got] == [{1: [1], 2: [b"\x08\x01"]}]


def test_without_a_server_the_reason_is_said(tmp_path, monkeypatch):
    pytest.importorskip("grpc")
    monkeypatch.setattr(preflight, "FIRST_WAIT_S", 0.01)

    assert "UNAVAILABLE" in preflight.send(f"unix://{tmp_path}/none.sock", [])


def test_the_container_that_the_webhook_makes_follows_the_schema():
    """As the chart and the webhook do: the image in one word, variables, GPUs and the volume of the socket."""
    values = yaml.safe_load((PAGES / "nvsentinel-values.yaml").read_text(encoding="utf-8"))
    (container,) = values["preflight"]["initContainers"]
    image = container.pop("image")
    container |= {"image": f"{image['repository']}:{image['tag']}"}
    container["env"] += [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
    container["resources"]["limits"]["nvidia.com/gpu"] = 8
    socket = {"name": "nvsentinel-socket", "hostPath": {"path": "/var/run/nvsentinel", "type": "DirectoryOrCreate"}}
    main = {"name": "train", "image": "train"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train"},
        "spec": {"initContainers": [container], "containers": [main], "volumes": [socket]},
    }

    assert values["global"] == {"preflight": {"enabled": True}}
    for release in ("1.29", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(json.loads(json.dumps(pod)), release, strict=True)
    assert container["command"] == [SCRIPT.name]
    assert f"COPY --chmod=755 {SCRIPT.name} /usr/local/bin/" in (PAGES / "preflight.Dockerfile").read_text()


def test_the_image_installs_what_the_locked_images_have():
    """The version and hashes of the lock, and nothing that is not hashed."""
    lock = (PAGES.parents[2] / "images/locks/tensorflow-cpu.txt").read_text(encoding="utf-8")
    (locked,) = re.findall(r"^(grpcio==\S+) \\\n((?:    --hash=.*\n)+)", lock, re.MULTILINE)
    rows = (PAGES / "preflight-requirements.txt").read_text(encoding="utf-8").splitlines()[1:]
    hashes = [row.strip(" \\") for row in rows[1:]]

    assert rows[0] == f"{locked[0]} \\"
    assert len(hashes) == 2
    assert all(one in locked[1] for one in hashes)
    (install,) = re.findall(r"pip install (.*)", (PAGES / "preflight.Dockerfile").read_text(encoding="utf-8"))
    assert "--require-hashes --requirement /tmp/preflight-requirements.txt" in install
