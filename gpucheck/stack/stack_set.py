"""One coherent set: the outside contract ``gpucheck.stack/1``."""

from typing import TYPE_CHECKING, Literal

import msgspec

from gpucheck.stack.components import VERSIONED
from gpucheck.stack.types import DriverChoice, Reason, TensorflowChoice, TorchChoice, Unconfirmed

SCHEMA = "gpucheck.stack/1"


class SetFields(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """One coherent set. nccl carries the CUDA its package was built for: ``2.29.3+cuda12.9``. None = not installed.

    source: whose archive the packages come from; left out where it is NVIDIA's repositories.
    dcgm, gdrcopy: options; left out where they are not requested. gdrcopy may be ``newest``: the repository decides.
    unconfirmed: packages of its plan that no public document shows; left out of a lock, where the plan says it.
    """

    schema_: str = SCHEMA
    gpus: tuple[str, ...]
    os: str
    arch: str
    driver: DriverChoice
    fabric_manager: str | None
    subnet_manager: bool
    imex: str | None
    cuda: str | None
    cudnn: str | None
    nccl: str | None
    container_toolkit: str | None
    torch: TorchChoice | None
    tensorflow: TensorflowChoice | None
    source: Literal["debian", "ubuntu"] | msgspec.UnsetType = msgspec.UNSET
    dcgm: str | msgspec.UnsetType = msgspec.UNSET
    gdrcopy: str | msgspec.UnsetType = msgspec.UNSET
    reasons: tuple[Reason, ...]
    unconfirmed: tuple[Unconfirmed, ...] | msgspec.UnsetType = msgspec.UNSET


# A component whose field is not stated above brings it; it is missing from a set that does not hold the component.
ADDED = [
    (row.name, str | None | msgspec.UnsetType, msgspec.UNSET)
    for row in VERSIONED
    if row.name not in SetFields.__struct_fields__
]
if TYPE_CHECKING:
    StackSet = SetFields
else:
    StackSet = msgspec.defstruct(
        "StackSet", ADDED, bases=(SetFields,), frozen=True, kw_only=True, rename={"schema_": "schema"}, module=__name__
    )
    StackSet.__doc__ = SetFields.__doc__
