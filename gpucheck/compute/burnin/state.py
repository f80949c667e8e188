"""The file of a burn-in: its rounds so far, and what was found. An interrupted run continues from it."""

import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gpucheck.compute.burnin.plan import BurnInPlan
from gpucheck.compute.burnin.rounds import Round
from gpucheck.model.compute import Noticed
from gpucheck.processes.atomic import write_atomic
from gpucheck.processes.trust import DistrustedError, open_own

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

    schema: Literal["gpucheck.burn-in/1"] = "gpucheck.burn-in/1"
    identity: Identity
    plan: BurnInPlan
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


def write(path: Path, state: State) -> None:
    """Write the file atomically, so that a cut leaves the earlier one. Raises OSError."""
    write_atomic(path, msgspec.json.encode(state))


def read(path: Path) -> State | None:
    """Return the state, None without a file. Raises StateError for a file that is damaged or that others may write."""
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            state = msgspec.json.decode(file.read(MOST_BYTES), type=State)
    except FileNotFoundError:
        return None
    except DistrustedError as error:
        raise StateError(f"{path}: not read: {error}. {OWN}.") from None
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}. {ANOTHER}.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StateError(
            f"{path}: no state of a burn-in of this gpucheck ({error}). {ANOTHER}, to begin again."
        ) from None
    if any(len(one.gpus) != len(state.identity.gpus) for one in state.rounds):
        raise StateError(f"{path}: a round without {len(state.identity.gpus)} GPUs. {ANOTHER}, to begin again.")
    return state


def fits(path: Path, state: State, identity: Identity, plan: BurnInPlan) -> None:
    """Raise StateError if the file is of a run that has ended, of another host or of another plan."""
    if state.ended is not None:
        raise StateError(f"{path}: this burn-in of {state.started} has ended ({state.ended}). {ANOTHER}.")
    fields = Identity.__struct_fields__
    changed = [name for name in fields if getattr(state.identity, name) != getattr(identity, name)]
    changed += ["duration"] if state.plan != plan else []
    if changed:
        raise StateError(f"{path}: of another run ({', '.join(changed)}). Continue it as it began, or: {ANOTHER}.")
