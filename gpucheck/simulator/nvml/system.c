/* The driver and the library themselves; confidential computing; units and excluded devices, of which there are none. */
#include <stdlib.h>

#include "simulator.h"

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const words[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "GPU access blocked by the operating system",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
        "Video memory ECC not supported", "Insufficient resources", "Frequency not supported",
        "Argument version mismatch", "Deprecated", "Not ready", "GPU not found", "Invalid state",
    };
    return (unsigned int)result < LENGTH(words) ? words[result] : "Unknown Error";
}

/* The active profile; NULL before nvmlInit. The real library has no such symbol: clients can check for it. */
const char *gpucheck_simulator_profile(void)
{
    const char *profile;
    return enter(__func__) == SUCCESS && find_text(&profile, "profile") == SUCCESS ? profile : NULL;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    TRY(enter(__func__));
    return copy_text(version, length, own_version());
}

typedef struct { unsigned int version; char branch[80]; } nvmlSystemDriverBranchInfo_t;

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *out, unsigned int length)
{
    char words[16];
    TRY(enter(__func__));
    if (out == NULL)
        return INVALID_ARGUMENT;
    if (out->version != 0x01000054)
        return ARGUMENT_VERSION_MISMATCH;
    snprintf(words, sizeof words, "r%d_00", atoi(own_version()));
    return copy_text(out->branch, length < sizeof out->branch ? length : sizeof out->branch, words);
}

/* NVML calls its CUDA version x.y by branch (580 -> 13.0), and itself <CUDA major>.<driver version>. */
static nvmlReturn_t cuda_version(const char *call, int *version)
{
    unsigned long long value;
    TRY(enter(call));
    TRY(version == NULL ? INVALID_ARGUMENT : find_number(&value, "cuda.%d", atoi(own_version())));
    *version = (int)value;
    return SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return cuda_version(__func__, version); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return cuda_version(__func__, version); }

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char words[96];
    int cuda;
    TRY(cuda_version(__func__, &cuda));
    snprintf(words, sizeof words, "%d.%s", cuda / 1000, own_version());
    return copy_text(version, length, words);
}

/* Of a process on one of the GPUs, as much of its command line as fits. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    const char *words;
    TRY(enter(__func__));
    if (name == NULL || length == 0)
        return INVALID_ARGUMENT;
    if (find_text(&words, "process.%u.name", pid) != SUCCESS)
        return NOT_FOUND;
    write_text(name, length, words);
    return SUCCESS;
}

static nvmlReturn_t confidential(const char *call, unsigned int *out, size_t values, const char *const *keys)
{
    unsigned long long value;
    size_t index;
    nvmlReturn_t result = enter(call);
    if (result == SUCCESS && out == NULL)
        result = INVALID_ARGUMENT;
    for (index = 0; result == SUCCESS && index < values; index++)
        if ((result = find_number(&value, "confidential.%s", keys[index])) == SUCCESS)
            out[index] = (unsigned int)value;
    return result;
}

nvmlReturn_t nvmlSystemGetConfComputeState(unsigned int out[3])
{
    static const char *const keys[] = {"environment", "feature", "dev_tools"};
    return confidential(__func__, out, LENGTH(keys), keys);
}

nvmlReturn_t nvmlSystemGetConfComputeGpusReadyState(unsigned int *out)
{
    static const char *const keys[] = {"ready"};
    return confidential(__func__, out, LENGTH(keys), keys);
}

nvmlReturn_t nvmlSystemGetConfComputeCapabilities(unsigned int out[2])
{
    static const char *const keys[] = {"cpu", "gpus"};
    return confidential(__func__, out, LENGTH(keys), keys);
}

typedef struct { unsigned int version, values[4]; } nvmlSystemConfComputeSettings_t;

nvmlReturn_t nvmlSystemGetConfComputeSettings(nvmlSystemConfComputeSettings_t *out)
{
    static const char *const keys[] = {"environment", "feature", "dev_tools", "multi_gpu"};
    unsigned int seen[LENGTH(keys)];
    TRY(confidential(__func__, out == NULL ? NULL : seen, LENGTH(keys), keys));
    if (out->version != 0x01000014)
        return ARGUMENT_VERSION_MISMATCH;
    memcpy(out->values, seen, sizeof seen);
    return SUCCESS;
}
