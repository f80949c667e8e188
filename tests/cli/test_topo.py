"""gpucheck topo on this machine and on simulated ones: exit status, messages, agreement of the witnesses."""

import threading

import msgspec
import pytest

from gpucheck.host import live as of_host
from gpucheck.model import NvmlFailure
from tests.checks.network import cards
from tests.fakes import SYSTEM, facts, live
from tests.machines import h100, on_bus, p100, reading

P100S = (p100(0), p100(1))
DOCKER = msgspec.structs.replace(SYSTEM, container="docker")
NOT_LOADED = NvmlFailure(call="nvmlInit_v2", code=9, name="NVML_ERROR_DRIVER_NOT_LOADED")


@pytest.fixture
def on(monkeypatch, topo):
    """Run on a host made of values."""

    def run(host, *arguments):
        monkeypatch.setattr("gpucheck.host.live_source", lambda **_: host)
        return topo(*arguments)

    return run


H100S = tuple(msgspec.structs.replace(h100(n), pci_bus_id=f"0000:{n}3:00.0") for n in range(3))


def with_card(card):
    """Three GPUs, of which the last one has this network card."""
    return cards.host(cards.card(), cards.card(), card, nvml=reading(*H100S, ancestor="NODE"))


@pytest.mark.parametrize(
    ("host", "status", "words"),
    [
        (facts(nvml=reading(*P100S), pci=on_bus(*P100S)), 0, "GPU 0: Tesla P100-PCIE-16GB (UUID: GPU-0) 0000:03:00.0"),
        (facts(nvml=reading(*P100S, ancestor="SYS"), pci=on_bus(*P100S)), 1, "WARN"),
        # As verify reports it; a container is given some of the GPUs and sees all of them on the PCI bus.
        (facts(nvml=reading(P100S[0]), pci=on_bus(*P100S)), 2, "missing from NVML"),
        (facts(nvml=reading(P100S[0]), pci=on_bus(*P100S), system=DOCKER), 0, "1 of the 2 GPUs of the host"),
        (facts(), 3, "UNKNOWN driver  "),
        (facts(pci=on_bus(*P100S), nvml=NOT_LOADED), 2, "FAIL    driver  "),
        (facts(nvml=reading()), 3, "UNKNOWN inventory  "),
        (facts(nvml=reading(), pci=on_bus(h100(0))), 2, "FAIL    inventory  GPU 0000:1b:00.0"),
        # The variables to export leave such a card out: whoever pastes them would lose it without a word.
        (with_card(cards.card(cards.DOWN)), 2, "FAIL    nic-ports  mlx5_2 port 1"),
        (with_card(msgspec.structs.replace(cards.CARD, ports=(), unread="no port")), 3, "UNKNOWN nic-ports  mlx5_2 "),
    ],
)
def test_the_exit_status_and_the_text_are_of_the_worst_finding(on, host, status, words):
    answer, out, _ = on(host)

    assert answer == status
    assert words in out
    assert "SIMULATED" not in out


def test_nvml_is_asked_in_a_child_with_a_deadline(monkeypatch, topo):
    """A wedged driver blocks NVML for ever; the matrix must not hang with it."""
    asked = {}
    monkeypatch.setattr("gpucheck.host.live_source", lambda **how: asked.update(how) or facts())
    topo("--timeout", "3")

    assert asked == {"isolated": True, "deadline_s": 3.0, "health": False, "begin": True}


def test_a_read_that_hangs_is_3(on, monkeypatch):
    end = threading.Event()
    monkeypatch.setattr(of_host, "READ_S", 0.3)
    status, out, err = on(live(monkeypatch, facts(nvml=reading(*P100S)), pci=lambda: end.wait(60)))
    end.set()

    assert (status, out) == (3, "")
    assert err.startswith("Error: no end within 0.3 s, in ")
    assert "The driver or the kernel is unresponsive" in err


def test_a_page_and_markdown_without_uuids_are_made_of_the_same_report(on):
    uuid = "GPU-5ec2f213-af40-cb06-a2d9-42946bc64825"
    gpus = (msgspec.structs.replace(p100(0), uuid=uuid), p100(1))
    host = facts(nvml=reading(*gpus), pci=on_bus(*gpus))
    page, text = (on(host, "--format", form)[1] for form in ("html", "markdown"))

    assert page.startswith("<!doctype html>")
    assert uuid in page
    assert text.startswith("## PASS: gpucheck topo, 2 x Tesla P100-PCIE-16GB\n")
    assert uuid not in text
    assert "| GPU0 | X | PIX |" in text
