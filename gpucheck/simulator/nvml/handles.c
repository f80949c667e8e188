/* Handles of GPUs and MIG devices: how they are found, and what a foreign or a lost one returns. */
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>

#include "simulator.h"

/* A handle is the address of its slot here. */
static const char gpus[MAX_GPUS], migs[MAX_GPUS * MAX_MIG];

int gpu_count(void)
{
    unsigned long long count = number_or(0, "gpu.count");
    return count <= MAX_GPUS ? (int)count : 0;
}

static int mig_count(int gpu)
{
    unsigned long long count = number_or(0, "gpu.%d.mig.count", gpu);
    return count <= MAX_MIG ? (int)count : 0;
}

/* Whose handle it is, lost or not. */
nvmlReturn_t check_handle(nvmlDevice_t device, struct subject *out)
{
    uintptr_t gpu = (uintptr_t)device - (uintptr_t)gpus, mig = (uintptr_t)device - (uintptr_t)migs;
    *out = (struct subject){"", (int)(gpu < MAX_GPUS ? gpu : mig / MAX_MIG), -1};
    if (gpu < (uintptr_t)gpu_count()) {
        snprintf(out->prefix, sizeof out->prefix, "gpu.%d", out->gpu);
        return SUCCESS;
    }
    if (mig >= sizeof migs || out->gpu >= gpu_count() || (int)(mig % MAX_MIG) >= mig_count(out->gpu))
        return INVALID_ARGUMENT;
    out->mig = (int)(mig % MAX_MIG);
    snprintf(out->prefix, sizeof out->prefix, "gpu.%d.mig.%d", out->gpu, out->mig);
    return SUCCESS;
}

nvmlReturn_t check_device(nvmlDevice_t device, struct subject *out)
{
    TRY(check_handle(device, out));
    TRY(enter_gpu(out->gpu));
    return (nvmlReturn_t)number_or(SUCCESS, "gpu.%d.error", out->gpu);
}

nvmlReturn_t enter_device(const char *call, nvmlDevice_t device, struct subject *out)
{
    TRY(enter(call));
    return check_device(device, out);
}

static nvmlReturn_t hand_out(nvmlDevice_t found, nvmlDevice_t *device)
{
    struct subject subject;
    nvmlReturn_t result = check_device(found, &subject);
    *device = found;
    if (result == SUCCESS)
        wake(subject.gpu);
    return result;
}

static nvmlReturn_t count_gpus(const char *call, unsigned int *count)
{
    TRY(enter(call));
    if (count == NULL)
        return INVALID_ARGUMENT;
    *count = (unsigned int)gpu_count();
    return SUCCESS;
}

static nvmlReturn_t by_index(const char *call, unsigned int index, nvmlDevice_t *device)
{
    TRY(enter(call));
    return device == NULL || index >= (unsigned int)gpu_count() ? INVALID_ARGUMENT : hand_out(&gpus[index], device);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return count_gpus(__func__, count); }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) { return count_gpus(__func__, count); }

#define BY_INDEX(function)                                                                                             \
    nvmlReturn_t function(unsigned int index, nvmlDevice_t *device) { return by_index(#function, index, device); }
BY_INDEX(nvmlDeviceGetHandleByIndex)
BY_INDEX(nvmlDeviceGetHandleByIndex_v2)

/* Domain, bus and device of `0000:3b:00.0`, with any number of digits and with or without the domain. */
int parse_bus_id(const char *words, unsigned int out[3])
{
    unsigned int function;
    char beyond;
    if (sscanf(words, "%x:%x:%x.%x%c", &out[0], &out[1], &out[2], &function, &beyond) == 4)
        return 1;
    out[0] = 0;
    return sscanf(words, "%x:%x.%x%c", &out[1], &out[2], &function, &beyond) == 3;
}

static nvmlReturn_t by_bus_id(const char *call, const char *bus_id, nvmlDevice_t *device)
{
    unsigned int wanted[3], seen[3];
    const char *words;
    int gpu;
    TRY(enter(call));
    if (bus_id == NULL || device == NULL || !parse_bus_id(bus_id, wanted))
        return INVALID_ARGUMENT;
    for (gpu = 0; gpu < gpu_count(); gpu++)
        if (find_text(&words, "gpu.%d.bus_id", gpu) == SUCCESS && parse_bus_id(words, seen) &&
            memcmp(wanted, seen, sizeof seen) == 0)
            return hand_out(&gpus[gpu], device);
    return NOT_FOUND;
}

#define BY_BUS_ID(function)                                                                                            \
    nvmlReturn_t function(const char *bus_id, nvmlDevice_t *device) { return by_bus_id(#function, bus_id, device); }
BY_BUS_ID(nvmlDeviceGetHandleByPciBusId)
BY_BUS_ID(nvmlDeviceGetHandleByPciBusId_v2)

static int has(const char *prefix, const char *key, const char *wanted)
{
    const char *words;
    return find_text(&words, "%s.%s", prefix, key) == SUCCESS && strcmp(words, wanted) == 0;
}

/* The GPU, or the MIG device of one, with this UUID. */
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    struct subject subject;
    int gpu, mig;
    TRY(enter(__func__));
    if (uuid == NULL || device == NULL)
        return INVALID_ARGUMENT;
    for (gpu = 0; gpu < gpu_count(); gpu++) {
        if (check_handle(&gpus[gpu], &subject) == SUCCESS && has(subject.prefix, "uuid", uuid))
            return hand_out(&gpus[gpu], device);
        for (mig = 0; mig < mig_count(gpu); mig++)
            if (check_handle(&migs[gpu * MAX_MIG + mig], &subject) == SUCCESS && has(subject.prefix, "uuid", uuid))
                return hand_out(&migs[gpu * MAX_MIG + mig], device);
    }
    return NOT_FOUND;
}

/* ---- MIG ---- */

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    struct subject subject;
    TRY(enter_device(__func__, device, &subject));
    if (is_mig == NULL)
        return INVALID_ARGUMENT;
    *is_mig = subject.mig >= 0;
    return SUCCESS;
}

/* Zero, not an error, if MIG is not supported or not enabled. */
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    struct subject subject;
    TRY(enter_device(__func__, device, &subject));
    if (count == NULL || subject.mig >= 0)
        return INVALID_ARGUMENT;
    *count = (unsigned int)number_or(0, "%s.mig.max", subject.prefix);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
    struct subject subject;
    unsigned long long most;
    TRY(enter_device(__func__, device, &subject));
    if (mig == NULL || subject.mig >= 0)
        return INVALID_ARGUMENT;
    TRY(find_number(&most, "%s.mig.max", subject.prefix));
    if (index >= most)
        return INVALID_ARGUMENT;
    return index < (unsigned int)mig_count(subject.gpu)
               ? hand_out(&migs[subject.gpu * MAX_MIG + (int)index], mig)
               : NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    struct subject subject;
    TRY(enter_device(__func__, mig, &subject));
    if (device == NULL || subject.mig < 0)
        return INVALID_ARGUMENT;
    return hand_out(&gpus[subject.gpu], device);
}

NUMBER(nvmlDeviceGetGpuInstanceId, "gpu_instance")
NUMBER(nvmlDeviceGetComputeInstanceId, "compute_instance")
