"""The file of a burn-in: what was measured so far, and what was found. An interrupted run continues from it."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gpucheck.compute.burnin.plan import Plan
from gpucheck.compute.burnin.rounds import Round
from gpucheck.model.compute import Noticed
from gpucheck.processes.atomic import PRIVATE, write_atomic
from gpucheck.processes.trust import DistrustedError, open_own

SCHEMA = "gpucheck.burn-in/1"
MOST_BYTES = 128 << 20  # 128 GPUs have about 70 MB after 48 hours
MOST_NOTICED = 100
OWN = "Remove it, or name a file in a directory of your own with --state FILE"
ANOTHER = "Name another file with --state FILE, or rename this one"


class StateError(Exception):
    """The file does not fit this run; the text states why and what to do."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be the same for results to be comparable. gpus: bus id, UUID and name of each, in order."""

    host: str
    gpucheck: str
    driver: str | None
    gpus: tuple[str, ...]
    engine: str
    versions: dict[str, str | None]
    simulation: tuple[str, ...] = ()


class State(msgspec.Struct, kw_only=True):
    """sessions: starts of gpucheck. rounds: the devices of each in the order of identity."""

    identity: Identity
    plan: Plan
    started: str
    sessions: Annotated[int, msgspec.Meta(ge=0)] = 0
    ended: Literal["complete", "limit", "no-device"] | None = None
    reason: str = ""
    noticed: list[Noticed] = msgspec.field(default_factory=list)
    rounds: list[Round] = msgspec.field(default_factory=list)

    @property
    def done(self) -> int:
        """Return how many rounds are whole."""
        return sum(one.whole for one in self.rounds)

    @property
    def seconds(self) -> float:
        """Return the seconds of load and rest."""
        return sum(one.seconds for one in self.rounds)


class _File(msgspec.Struct, kw_only=True, rename={"schema_": "schema"}):
    """sha256: of the bytes of state, which shows a file that is damaged or was edited."""

    schema_: Literal["gpucheck.burn-in/1"]
    sha256: str
    state: msgspec.Raw


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep other burn-ins from this file, by a lock next to it that ends with the process.

    Raises StateError if another process has it or another user may write there, OSError if it is not writable.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.with_name(f".{path.name}.lock")
    while True:
        try:
            lock = open_own(name, os.O_RDWR | os.O_CREAT, PRIVATE)
        except DistrustedError as error:
            raise StateError(f"{path}: not used: {error}. {OWN}.") from None
        try:
            _lock(lock, path)
            if name.exists() and os.path.samestat(os.fstat(lock), name.stat()):
                break
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # removed by the process that had it, after it was opened here
    try:
        os.ftruncate(lock, 0)
        os.write(
            lock, f"process {os.getpid()} since {datetime.now(timezone.utc).isoformat(timespec='seconds')}".encode()
        )
        yield
    finally:
        name.unlink(missing_ok=True)
        os.close(lock)


def _lock(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        by = os.pread(lock, 200, 0).decode(errors="replace") or "another process"
        wait = "Wait until it ends, or name another file with --state FILE"
        raise StateError(f"{path}: in use by a burn-in of {by}. {wait}.") from None
    except OSError:
        pass  # a file system without locks


def write(path: Path, state: State) -> None:
    """Write the file atomically, so that a cut leaves the earlier one. Raises OSError."""
    content = msgspec.json.encode(state)
    sha256 = hashlib.sha256(content).hexdigest()
    made = _File(schema_=SCHEMA, sha256=sha256, state=msgspec.Raw(content))  # type: ignore[arg-type]  # the literal
    write_atomic(path, msgspec.json.encode(made))


def read(path: Path) -> State | None:
    """Return the state, None without a file. Raises StateError for a file that cannot be read or is damaged."""
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except DistrustedError as error:
        raise StateError(f"{path}: not read: {error}. {OWN}.") from None
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}. {ANOTHER}.") from error
    lost = f"The run cannot go on from it. {ANOTHER}, to begin again."
    if len(content) > MOST_BYTES:
        raise StateError(f"{path}: larger than a burn-in writes ({MOST_BYTES >> 20} MiB). {lost}")
    try:
        file_ = msgspec.json.decode(content, type=_File)
        if hashlib.sha256(file_.state).hexdigest() != file_.sha256:
            raise StateError(f"{path}: its content does not match its checksum: damaged, or edited. {lost}")
        state = msgspec.json.decode(file_.state, type=State)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StateError(f"{path}: no state of a burn-in of this gpucheck ({error}). {lost}") from error
    for one in state.rounds:
        if len(one.gpus) != len(state.identity.gpus):
            raise StateError(f"{path}: {len(one.gpus)} results for {len(state.identity.gpus)} GPUs. {lost}")
    return state


def fits(path: Path, state: State, identity: Identity, plan: Plan) -> None:
    """Raise StateError if the file is of a run that has ended, of another host or of another plan."""
    if state.ended is not None:
        raise StateError(f"{path}: this burn-in of {state.started} has ended ({state.ended}). {ANOTHER}.")
    changed = [
        f"{name} was {_shown(was)}, is {_shown(now)}"
        for name in Identity.__struct_fields__
        if (was := getattr(state.identity, name)) != (now := getattr(identity, name))
    ]
    if state.plan != plan:
        changed.append(f"duration was {state.plan.seconds:g} s, is {plan.seconds:g} s")
    if changed:
        raise StateError(f"{path}: of another run: {'; '.join(changed)}. Continue it as it began, or: {ANOTHER}.")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items()) or "nothing"
    return ", ".join(map(str, value)) or "nothing" if isinstance(value, tuple) else str(value)
