/* Names of error codes, as cuda.h has them. */
#include "driver.h"

#define ERROR(code, text) {code, "CUDA_ERROR_" #code, text}

static const struct row { CUresult code; const char *name, *text; } ERRORS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    ERROR(INVALID_VALUE, "invalid argument"),
    ERROR(OUT_OF_MEMORY, "out of memory"),
    ERROR(NOT_INITIALIZED, "initialization error"),
    ERROR(DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR(NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(INVALID_DEVICE, "invalid device ordinal"),
    ERROR(INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(INVALID_CONTEXT, "invalid device context"),
    ERROR(NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    ERROR(ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    ERROR(PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    ERROR(INVALID_PTX, "a PTX JIT compilation failed"),
    ERROR(NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution"),
    ERROR(UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain."),
    ERROR(INVALID_HANDLE, "invalid resource handle"),
    ERROR(NOT_FOUND, "named symbol not found"),
    ERROR(NOT_READY, "device not ready"),
    ERROR(ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    ERROR(PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    ERROR(PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    ERROR(CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(TOO_MANY_PEERS, "peer mapping resources exhausted"),
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    ERROR(MISALIGNED_ADDRESS, "misaligned address"),
    ERROR(LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(NOT_PERMITTED, "operation not permitted"),
    ERROR(NOT_SUPPORTED, "operation not supported"),
    ERROR(SYSTEM_NOT_READY, "system not yet initialized"),
    ERROR(SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination"),
    ERROR(UNKNOWN, "unknown error"),
};

/* The row of a code; one of NULLs for an unknown code. */
static const struct row *row_of(CUresult code)
{
    static const struct row UNLISTED;
    size_t row;
    for (row = 0; row < LENGTH(ERRORS); row++)
        if (ERRORS[row].code == code)
            return &ERRORS[row];
    return &UNLISTED;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **out)
{
    if (out == NULL)
        return INVALID_VALUE;
    *out = row_of(code)->name;
    return *out == NULL ? INVALID_VALUE : SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **out)
{
    if (out == NULL)
        return INVALID_VALUE;
    *out = row_of(code)->text;
    return *out == NULL ? INVALID_VALUE : SUCCESS;
}
