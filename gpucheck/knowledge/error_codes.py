"""Error numbers of CUDA and NVML: their names, texts and meaning (error_codes.yml)."""

from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, table


class CudaError(msgspec.Struct, frozen=True, kw_only=True):
    """One number of CUDA. name: of the runtime, driver: of the driver API; None where one of them lacks it."""

    code: int
    text: str
    name: str | None = None
    driver: str | None = None


class NvmlError(msgspec.Struct, frozen=True, kw_only=True):
    """One number of NVML. verdict: of a host on which a program gets it; cause: a key of causes.yml."""

    code: int
    name: str
    text: str
    verdict: Literal["pass", "warn", "fail", "unknown"]
    means: str
    cause: str | None = None


class _Codes(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.error_codes/1"]
    cuda: tuple[CudaError, ...]
    nvml: tuple[NvmlError, ...]


def cuda_errors() -> dict[int, CudaError]:
    """Every error of the CUDA runtime and driver by its number."""
    return {row.code: row for row in table("error_codes.yml", _Codes).cuda}


def nvml_errors() -> dict[int, NvmlError]:
    """Every error of NVML by its number."""
    return {row.code: row for row in table("error_codes.yml", _Codes).nvml}
