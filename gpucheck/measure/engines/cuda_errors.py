"""CUDA's error codes (cudaError_t of driver_types.h), and the failure kind of each. Texts are not compared."""

from gpucheck.measure.values import FailureKind

OUT_OF_MEMORY = 2
PEERS_USED_UP = 711
# Errors of the program or its build, unrelated to the copied pair.
PROGRAM = frozenset({1, 9, 13, 98, 101, 200, 201, 209, 218, 221, 222, 223, 400})
NAMES = {
    1: "cudaErrorInvalidValue",
    2: "cudaErrorMemoryAllocation",
    98: "cudaErrorInvalidDeviceFunction",
    209: "cudaErrorNoKernelImageForDevice",
    214: "cudaErrorECCUncorrectable",
    217: "cudaErrorPeerAccessUnsupported",
    220: "cudaErrorNvlinkUncorrectable",
    222: "cudaErrorUnsupportedPtxVersion",
    400: "cudaErrorInvalidResourceHandle",
    700: "cudaErrorIllegalAddress",
    702: "cudaErrorLaunchTimeout",
    705: "cudaErrorPeerAccessNotEnabled",
    711: "cudaErrorTooManyPeers",
    714: "cudaErrorHardwareStackError",
    719: "cudaErrorLaunchFailure",
    800: "cudaErrorNotPermitted",
    801: "cudaErrorNotSupported",
    802: "cudaErrorSystemNotReady",
    803: "cudaErrorSystemDriverMismatch",
    999: "cudaErrorUnknown",
}


def kind_of(code: int) -> FailureKind:
    """Return the kind of failure of this code."""
    if code == OUT_OF_MEMORY:
        return "no-memory"
    if code == PEERS_USED_UP:
        return "no-peers-left"
    return "defect" if code in PROGRAM else "refused"


def error_text(code: int) -> str:
    """Return the code with its name, as in ``CUDA error 217 (cudaErrorPeerAccessUnsupported)``."""
    return f"CUDA error {code} ({NAMES[code]})" if code in NAMES else f"CUDA error {code}"
