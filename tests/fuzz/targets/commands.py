"""The command line itself: hostile arguments, and files through whole commands as a person sees them."""

from tests.fuzz import product
from tests.fuzz.oracles import Wrong
from tests.fuzz.seeds import documents, own, pastes
from tests.fuzz.strategies import SEPARATOR
from tests.fuzz.target import Seeds, target

# Commands that only read. Others start programs, measure, or write in places that they are told.
READ_ONLY = ("diagnose", "topo", "explain", "profiles", "stack", "fleet", "verify")
NOT_THESE = (
    *("simulate", "--write", "--all-hosts", "-o", "--output", "--svg"),
    # It writes too, and it reaches for the network.
    "check-repositories",
)
STATUSES = (0, 1, 2, 3, 64)


FILES: dict[str, Seeds] = {
    "topo.txt": pastes.matrices,
    "p2p.txt": lambda: pastes.measurements()[-1:],
    "dmesg.txt": pastes.kernel_logs,
    "machine.yml": documents.observations,
    "site.yml": lambda: (documents.EXPECTATIONS,),
    "host.rec": own.packed_recordings,
    "node01.json": own.reports,
    "stack.yml": documents.specs,
    "stack.lock.yml": own.locks,
    "facts.json": own.facts,
    "labels.yml": lambda: (documents.LABELS,),
}
"""By the name in LINES: the first seed."""
LINES = (
    "diagnose --observations machine.yml --format json",
    "diagnose topo.txt p2p.txt --strict",
    "diagnose dmesg.txt",
    "topo --import topo.txt --best 2",
    "topo --from host.rec --format json --timeout 5",
    "explain acs-redirect",
    "explain 79",
    "profiles --format json",
    "stack resolve --gpu 8xH200 --os ubuntu-22.04 --want torch=2.7 --want cuda<13 --format json",
    "stack resolve --gpu 0x15f8 --os rocky-9 --prefer newest --arch x86_64 --nvswitches 4",
    "stack plan --lock stack.lock.yml --host node01",
    "stack diff --spec stack.yml --facts facts.json --lock stack.lock.yml",
    "fleet report node01.json --expect-host node02,node03 --labels labels.yml --format csv",
    "fleet report node01.json --select 2 --gpu-model P100 --allow-warn",
    "verify --from host.rec --level quick --only driver --skip mig --expect site.yml --format nagios",
    "verify --from host.rec --baseline node01.json --strict",
)


def _lines() -> tuple[bytes, ...]:
    return tuple(line.encode().replace(b" ", SEPARATOR) for line in LINES)


def _ready() -> None:
    for name, seeds in FILES.items():
        if not (product.scratch() / name).exists():
            product.file(seeds()[0], name)


@target(seeds=_lines, format="arguments")
def arguments(data: bytes) -> None:
    """Hostile words on the command line."""
    words = [word.decode("utf-8", "surrogateescape") for word in data.split(SEPARATOR)][:64]
    if (
        words[0] not in READ_ONLY
        or any(part in word for word in words for part in NOT_THESE)
        or "-o" in data.decode("latin-1")
    ):
        return
    _ready()
    _looked_at(product.command(words))


@target(seeds=pastes.everything, format="text")
def stdin(data: bytes) -> None:
    """A paste through a pipe, as topo and as diagnose see it."""
    for words in (["topo", "--import", "-"], ["diagnose", "-"]):
        _looked_at(product.command(words, data))


@target(seeds=documents.observations, format="yaml")
def diagnose_file(data: bytes) -> None:
    """diagnose --observations."""
    _looked_at(product.command(["diagnose", "--observations", str(product.file(data, "seen.yml"))]))


@target(seeds=own.reports, format="json")
def baseline_file(data: bytes) -> None:
    """verify --baseline against a recording."""
    _ready()
    _verify("host.rec", "--baseline", str(product.file(data, "before.json")))


def _verify(recording: str, *options: str) -> None:
    _looked_at(product.command(["verify", "--from", recording, "--only", "driver", *options]))


@target(seeds=own.recordings, format="json")
def from_file(data: bytes) -> None:
    """verify, topo and stack --from."""
    path = str(product.file(data, "hostile.rec"))
    _verify(path)
    for words in (["topo", "--from", path], ["stack", "resolve", "--from", path]):
        _looked_at(product.command(words))


def _looked_at(ended: product.Ended) -> None:
    """A documented status, clean text on both streams, and one Error line at most."""
    ended.verify(STATUSES)
    errors = [line for line in ended.err.splitlines() if line.startswith("Error: ")]
    if len(errors) > 1:
        raise Wrong("several Error lines", ascii(ended.err[:200]))
    if (
        errors
        and ended.status != 64
        and not ended.err.rstrip().startswith("Usage")
        and len(ended.err.rstrip().splitlines()) > 1
    ):
        raise Wrong("an error of several lines", ascii(ended.err[:200]))
    if len(ended.err) > 20_000:
        raise Wrong("messages without bound", f"{len(ended.err)} characters")
