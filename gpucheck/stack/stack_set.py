"""One compatible set: the public contract ``gpucheck.stack/1``."""

from typing import TYPE_CHECKING, Literal

import msgspec

from gpucheck.stack.components import VERSIONED
from gpucheck.stack.types import DriverChoice, Reason, TensorflowChoice, TorchChoice, Unconfirmed

SCHEMA = "gpucheck.stack/1"


class SetFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"schema_": "schema"}):
    """One compatible set. nccl includes the CUDA of its package: ``2.29.3+cuda12.9``. None = not installed.

    source: the distribution's archive with the packages; omitted for NVIDIA's repositories.
    dcgm: omitted unless requested.
    unconfirmed: packages of its plan that no public document shows; omitted from a lock, as the plan lists them.
    """

    schema_: str
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
    source: Literal["debian", "ubuntu"] | None = None
    dcgm: str | None = None
    reasons: tuple[Reason, ...]
    unconfirmed: tuple[Unconfirmed, ...] | None = None


# Other fields are defined by their component; a set without the component omits them.
ADDED = [(row.name, str | None, None) for row in VERSIONED if row.name not in SetFields.__struct_fields__]
if TYPE_CHECKING:
    StackSet = SetFields
else:
    OPTIONS = {"frozen": True, "kw_only": True, "omit_defaults": True, "rename": {"schema_": "schema"}}
    StackSet = msgspec.defstruct("StackSet", ADDED, bases=(SetFields,), module=__name__, **OPTIONS)
    StackSet.__doc__ = SetFields.__doc__
