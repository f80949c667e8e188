"""Nothing planted leaks, wherever it stands; what a diagnosis needs survives."""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.host.recording.redaction import Pseudonyms, redacted
from tests.fakes import SYSTEM, facts, kernel_log
from tests.host.recording.planted import GHP, HARMLESS, JWT, PLANTED
from tests.host.recording.test_recording import written

OWN = msgspec.structs.replace(SYSTEM, hostname="own-host7.example.com")


def recording(place, text):
    """A recording that holds this text there."""
    kind, _, name = place.partition(" ")
    host = facts(
        system=OWN,
        kernel_log=kernel_log(*(text.split("\n") if kind == "log" else ())),
        environment={name: text} if kind == "env" else {},
    )
    path = "/proc/cmdline" if kind == "cmdline" else kind
    texts: dict[str, str | None] = {path: text} if path.startswith("/") else {}
    return msgspec.structs.replace(written(host, ()), texts=texts)


def words(recorded):
    return msgspec.json.encode(recorded).decode()


def text_of(place, recorded):
    """The text at the place where it was planted."""
    if place == "log":
        return "\n".join(line.text for line in recorded.kernel_log.lines)
    return "\n".join((*recorded.environment.values(), *(text for text in recorded.texts.values() if text)))


def test_there_are_enough():
    assert len(PLANTED) >= 100
    assert len(HARMLESS) >= 40


@pytest.mark.parametrize(("place", "text", "hidden"), PLANTED, ids=lambda it: it[:40] if isinstance(it, str) else "")
def test_planted_text_does_not_stay(place, text, hidden):
    before = recording(place, text)
    after = redacted(before, Pseudonyms(b"salt"))

    assert all(one in text for one in hidden)
    assert [one for one in hidden if one.lower() in words(after).lower()] == []
    assert sum(after.redactions.values()) > 1  # more than the host's own name


@pytest.mark.parametrize("text", HARMLESS)
@pytest.mark.parametrize("place", ["log", "/etc/nccl.conf"])
def test_harmless_text_survives(place, text):
    assert text_of(place, redacted(recording(place, text))) == text


SHAPED = (GHP, JWT, "AKIAIOSFODNN7EXAMPLE", "glpat-Zx9_kLmNoPqRsTuVwXyZ", "xoxb-123456789012-abcdefABCDEF",
          "--token=Tok123abc", "password=Tok123abc", "'apikey': 'Tok123abc'", "10.77.3.99", "0c:42:a1:de:ad:be",
          "https://alice:Tok123abc@mirror/", "/home/alice", "alice@acme-corp.com", "gpu7.acme-corp.com")  # fmt: skip
LEAKS = re.compile(r"16C7e42F|c2lnbmF0|IOSFODNN|Zx9_kLm|abcdefABCDEF|Tok123abc|10\.77\.3\.99|0c:42:a1|alice|acme-corp")
AROUND = st.text(alphabet=" \t,;()[]{}<>\"'|:=\n", max_size=6).map(lambda edge: edge or " ")
NOISE = st.lists(st.sampled_from([*HARMLESS, "password", "--x", "key", "user", "Bearer", "https://x/", '"', "=", "{"]))


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SHAPED), NOISE, AROUND.filter(lambda e: e[-1] not in ":="), NOISE, AROUND)
def test_surroundings_hide_no_secret(secret, before, edge, after, end):
    """Whatever stands around it, as long as something separates it from words."""
    text = "".join((" ".join(before), edge, secret, end if end[0] not in ":=" else " ", " ".join(after)))
    shown = redacted(recording("env TORCH_EXTRA", text)).environment["TORCH_EXTRA"]

    assert not LEAKS.search(shown), (text, shown)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_text_ends(text):
    """Also characters of the private planes, which the replacements use while they are made."""
    shown = redacted(recording("env TORCH_EXTRA", text)).environment["TORCH_EXTRA"]

    assert not re.search("[\U000f0000-\U0010fffd]", shown)


def test_the_same_thing_has_the_same_replacement_in_every_form():
    lines = ("MAC address 0c42a1deadbe", "eth0 0C-42-A1-DE-AD-BE", "eth0 0c:42:a1:de:ad:be", "eth0 0c42.a1de.adbe")
    after = redacted(recording("log", "\n".join(lines)))
    digits = {re.sub(r"[^0-9a-f]", "", line.text.lower().split()[-1]) for line in after.kernel_log.lines}

    assert len(digits) == 1
    assert after.redactions["hardware address"] == 1


def test_a_list_of_nodes_is_consistent_with_its_nodes():
    listed = recording("env SLURM_JOB_NODELIST", "gpu[01-02]")
    both = msgspec.structs.replace(listed, kernel_log=kernel_log("peer gpu02 lost"))
    after = redacted(both)
    nodes = after.environment["SLURM_JOB_NODELIST"].split(",")

    assert len(set(nodes)) == 2
    assert after.kernel_log.lines[0].text == f"peer {nodes[1]} lost"


def test_a_private_key_over_several_lines_of_the_log_goes():
    lines = ("x", "-----BEGIN RSA PRIVATE KEY-----", "MIIE", "abcd", "-----END RSA PRIVATE KEY-----", "NVRM: y")
    after = [line.text for line in redacted(recording("log", "\n".join(lines))).kernel_log.lines]

    assert (after[0], after[-1], len(after)) == ("x", "NVRM: y", 6)
    assert not re.search("MIIE|abcd", "".join(after))


def test_the_beginning_of_a_uuid_stays_the_beginning_of_the_same_gpu():
    """CUDA_VISIBLE_DEVICES=GPU-5ec2f213 names a GPU: also after the redaction, or the verdict would change."""
    from tests.machines import LOADED, h100, on_bus, reading

    gpu = msgspec.structs.replace(h100(0), uuid="GPU-5ec2f213-af40-cb06-a2d9-42946bc64825")
    host = facts(
        driver=LOADED, pci=on_bus(gpu), nvml=reading(gpu), environment={"CUDA_VISIBLE_DEVICES": "GPU-5ec2f213"}
    )
    after = redacted(written(host, ()))

    assert after.environment["CUDA_VISIBLE_DEVICES"] != "GPU-5ec2f213"
    assert after.nvml.gpus[0].uuid.startswith(after.environment["CUDA_VISIBLE_DEVICES"])


@pytest.mark.parametrize("word", ["fallen", "off", "pid", "NVRM", "uncorrectable", "bus"])
def test_an_attempt_to_log_in_under_a_word_of_a_message_hides_no_error(word):
    """Anybody can try to log in as "fallen"; what the check reads stays."""
    error = "NVRM: Xid (PCI:0000:4c:00): 79, pid=1234, name=python3, GPU has fallen off the bus. Uncorrectable"
    after = redacted(recording("log", f"sshd[1]: Invalid user {word} from 192.0.2.1 port 22\n{error}"))

    assert after.kernel_log.lines[1].text == error
