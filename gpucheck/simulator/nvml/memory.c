/* Memory of a GPU or a MIG device, and the processes that use it. */
#include <limits.h>
#include <time.h>

#include "simulator.h"

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;

static nvmlReturn_t memory(const char *call, nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    struct subject subject;
    TRY(enter_device(call, device, &subject));
    TRY(find_number(&out->total, "%s.memory.total", subject.prefix));
    out->reserved = number_or(0, "%s.memory.reserved", subject.prefix);
    out->used = number_or(0, "%s.memory.used", subject.prefix);
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}

/* Version 1 has no place for what the driver reserves and counts it as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    nvmlMemory_v2_t seen = {0};
    TRY(memory(__func__, device, &seen));
    if (out == NULL)
        return INVALID_ARGUMENT;
    *out = (nvmlMemory_t){seen.total, seen.free, seen.reserved + seen.used};
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    nvmlMemory_v2_t seen = {0};
    nvmlReturn_t result = memory(__func__, device, &seen);
    if (result == SUCCESS && out == NULL)
        return INVALID_ARGUMENT;
    if (result == SUCCESS && out->version != 0x02000028)
        return ARGUMENT_VERSION_MISMATCH;
    seen.version = 0x02000028;
    if (result == SUCCESS)
        *out = seen;
    return result;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    struct subject subject;
    unsigned long long total, used;
    TRY(enter_device(__func__, device, &subject));
    TRY(out == NULL ? INVALID_ARGUMENT : find_number(&total, "%s.bar1.total", subject.prefix));
    used = number_or(0, "%s.bar1.used", subject.prefix);
    *out = (nvmlMemory_t){total, total - used, used};
    return SUCCESS;
}

/* ---- processes: kind is compute, graphics or mps ---- */

typedef struct { unsigned int pid; unsigned long long memory; } nvmlProcessInfo_v1_t;
typedef struct { unsigned int pid; unsigned long long memory; unsigned int gpuInstance, computeInstance; } nvmlProcessInfo_t;
typedef struct {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpuInstance, computeInstance;
    unsigned long long protectedMemory;
} nvmlProcessDetail_t;
typedef struct { unsigned int version, mode, entries; nvmlProcessDetail_t *array; } nvmlProcessDetailList_t;

static unsigned int running(const struct subject *subject, const char *kind)
{
    return (unsigned int)number_or(0, "%s.process.%s.count", subject->prefix, kind);
}

static nvmlProcessDetail_t process(const struct subject *subject, const char *kind, unsigned int number)
{
    nvmlProcessDetail_t seen;
#define OF(otherwise, what) number_or(otherwise, "%s.process.%s.%u." what, subject->prefix, kind, number)
    seen.pid = (unsigned int)OF(0, "pid");
    seen.memory = OF(ULLONG_MAX, "memory"); /* "not available" */
    seen.gpuInstance = (unsigned int)OF(UINT_MAX, "gpu_instance");
    seen.computeInstance = (unsigned int)OF(UINT_MAX, "compute_instance");
    seen.protectedMemory = OF(0, "protected_memory");
#undef OF
    return seen;
}

/* Without a buffer, or if it is too small, only the number of processes is returned. */
static nvmlReturn_t count_processes(const char *call, nvmlDevice_t device, const char *kind, unsigned int *count,
                                    const void *out, struct subject *subject)
{
    unsigned int space;
    TRY(enter_device(call, device, subject));
    if (count == NULL || (out == NULL && *count != 0))
        return INVALID_ARGUMENT;
    space = *count;
    *count = running(subject, kind);
    return *count > space ? INSUFFICIENT_SIZE : SUCCESS;
}

static nvmlReturn_t processes_v1(const char *call, nvmlDevice_t device, const char *kind, unsigned int *count,
                                 nvmlProcessInfo_v1_t *out)
{
    struct subject subject;
    unsigned int number;
    nvmlReturn_t result = count_processes(call, device, kind, count, out, &subject);
    for (number = 0; result == SUCCESS && number < *count; number++) {
        nvmlProcessDetail_t seen = process(&subject, kind, number);
        out[number] = (nvmlProcessInfo_v1_t){seen.pid, seen.memory};
    }
    return result;
}

static nvmlReturn_t processes(const char *call, nvmlDevice_t device, const char *kind, unsigned int *count,
                              nvmlProcessInfo_t *out)
{
    struct subject subject;
    unsigned int number;
    nvmlReturn_t result = count_processes(call, device, kind, count, out, &subject);
    for (number = 0; result == SUCCESS && number < *count; number++) {
        nvmlProcessDetail_t seen = process(&subject, kind, number);
        out[number] = (nvmlProcessInfo_t){seen.pid, seen.memory, seen.gpuInstance, seen.computeInstance};
    }
    return result;
}

#define PROCESSES(function, kind)                                                                                      \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *out)                         \
    {                                                                                                                  \
        return processes_v1(#function, device, kind, count, out);                                                      \
    }                                                                                                                  \
    nvmlReturn_t function##_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out)                       \
    {                                                                                                                  \
        return processes(#function "_v2", device, kind, count, out);                                                   \
    }                                                                                                                  \
    nvmlReturn_t function##_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out)                       \
    {                                                                                                                  \
        return processes(#function "_v3", device, kind, count, out);                                                   \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, "mps")

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *out)
{
    static const char *const kinds[] = {"compute", "graphics", "mps"};
    struct subject subject;
    unsigned int number;
    nvmlReturn_t result = enter_device(__func__, device, &subject);
    if (result == SUCCESS && (out == NULL || out->mode >= LENGTH(kinds)))
        return INVALID_ARGUMENT;
    if (result == SUCCESS && out->version != 0x01000018)
        return ARGUMENT_VERSION_MISMATCH;
    if (result == SUCCESS)
        result = count_processes(__func__, device, kinds[out->mode], &out->entries, out->array, &subject);
    for (number = 0; result == SUCCESS && number < out->entries; number++)
        out->array[number] = process(&subject, kinds[out->mode], number);
    return result;
}

typedef struct {
    unsigned int pid;
    unsigned long long timestamp;
    unsigned int multiprocessors, memory, encoder, decoder;
} nvmlProcessUtilizationSample_t;

/* One sample of each computing process, taken now; NOT_FOUND where none has been taken since `after` (microseconds). */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out,
                                             unsigned int *count, unsigned long long after)
{
    struct subject subject;
    struct timespec clock;
    unsigned long long now;
    unsigned int number, samples;
    TRY(enter_device(__func__, device, &subject));
    if (subject.mig >= 0 || number_or(0, "%s.mig.current", subject.prefix) != 0)
        return NOT_SUPPORTED;
    if (count == NULL || (out == NULL && *count != 0))
        return INVALID_ARGUMENT;
    clock_gettime(CLOCK_REALTIME, &clock);
    now = (unsigned long long)clock.tv_sec * 1000000 + (unsigned long long)clock.tv_nsec / 1000;
    samples = running(&subject, "compute");
    if (samples == 0 || after > now)
        return NOT_FOUND;
    if (samples > *count) {
        *count = samples;
        return INSUFFICIENT_SIZE;
    }
    *count = samples;
    for (number = 0; number < samples; number++)
        out[number] = (nvmlProcessUtilizationSample_t){
            .pid = process(&subject, "compute", number).pid,
            .timestamp = now,
            .multiprocessors = (unsigned int)number_or(0, "%s.utilization.gpu", subject.prefix),
            .memory = (unsigned int)number_or(0, "%s.utilization.memory", subject.prefix),
        };
    return SUCCESS;
}
