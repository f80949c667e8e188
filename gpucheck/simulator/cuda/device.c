/* What a GPU is: name, place, memory, attributes. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "driver.h"

#define KNOWN_ATTRIBUTES 161 /* CUdevice_attribute of CUDA 13.4 */
#define ATS 2                /* addressing_mode in machine.txt: the CPU's page tables serve the GPU as well */

/* Attributes that are the same for each GPU here. What is not listed is 0: not there, or not modelled. */
static const struct { int attribute, value; } FIXED[] = {
    {1, 1024},    /* MAX_THREADS_PER_BLOCK */
    {2, 1024},    /* MAX_BLOCK_DIM_X */
    {3, 1024},    /* MAX_BLOCK_DIM_Y */
    {4, 64},      /* MAX_BLOCK_DIM_Z */
    {5, 0x7FFFFFFF}, /* MAX_GRID_DIM_X */
    {6, 65535},   /* MAX_GRID_DIM_Y */
    {7, 65535},   /* MAX_GRID_DIM_Z */
    {8, 49152},   /* MAX_SHARED_MEMORY_PER_BLOCK */
    {9, 65536},   /* TOTAL_CONSTANT_MEMORY */
    {10, 32},     /* WARP_SIZE */
    {12, 65536},  /* MAX_REGISTERS_PER_BLOCK */
    {14, 512},    /* TEXTURE_ALIGNMENT */
    {15, 1},      /* GPU_OVERLAP */
    {19, 1},      /* CAN_MAP_HOST_MEMORY */
    {31, 1},      /* CONCURRENT_KERNELS */
    {39, 2048},   /* MAX_THREADS_PER_MULTIPROCESSOR */
    {41, 1},      /* UNIFIED_ADDRESSING */
    {78, 1},      /* STREAM_PRIORITIES_SUPPORTED */
    {90, 1},      /* COMPUTE_PREEMPTION_SUPPORTED */
    {99, 1},      /* HOST_REGISTER_SUPPORTED */
    {122, 1},     /* CAN_USE_64_BIT_STREAM_MEM_OPS */
    {123, 1},     /* CAN_USE_STREAM_WAIT_VALUE_NOR */
};

EXPORT CUresult cuDeviceGetCount(int *count)
{
    GUARDED;
    if (initialized() != SUCCESS)
        return NOT_INITIALIZED;
    if (count == NULL)
        return INVALID_VALUE;
    *count = gpu_count;
    return SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    GUARDED;
    TRY(check_device(ordinal));
    if (device == NULL)
        return INVALID_VALUE;
    *device = ordinal;
    return SUCCESS;
}

static CUresult text(CUdevice device, const char *value, char *out, int length)
{
    TRY(check_device(device));
    if (out == NULL || length <= 0)
        return INVALID_VALUE;
    snprintf(out, (size_t)length, "%s", value);
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *out, int length, CUdevice device)
{
    GUARDED;
    return text(device, check_device(device) == SUCCESS ? gpus[device].name : "", out, length);
}

EXPORT CUresult cuDeviceGetPCIBusId(char *out, int length, CUdevice device)
{
    GUARDED;
    char upper[16] = "";
    size_t place;
    if (check_device(device) == SUCCESS)
        for (place = 0; gpus[device].bus_id[place] != '\0'; place++)
            upper[place] = (char)(gpus[device].bus_id[place] - (gpus[device].bus_id[place] >= 'a' ? 'a' - 'A' : 0));
    return text(device, upper, out, length);
}

/* 00000000:1B:00.0, 0000:1b:00.0, 1b:00.0 and 1b:00 all name one function. */
static bool place_of(const char *words, unsigned int out[4])
{
    out[0] = out[3] = 0;
    return sscanf(words, "%x:%x:%x.%x", &out[0], &out[1], &out[2], &out[3]) >= 3 ||
           (out[0] = 0, sscanf(words, "%x:%x.%x", &out[1], &out[2], &out[3]) >= 2);
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *words)
{
    GUARDED;
    unsigned int wanted[4], has[4];
    int number;
    if (initialized() != SUCCESS)
        return NOT_INITIALIZED;
    if (device == NULL || words == NULL || !place_of(words, wanted))
        return INVALID_VALUE;
    for (number = 0; number < gpu_count; number++)
        if (place_of(gpus[number].bus_id, has) && memcmp(has, wanted, sizeof has) == 0) {
            *device = number;
            return SUCCESS;
        }
    return INVALID_DEVICE;
}

static CUresult uuid_of(unsigned char out[16], CUdevice device)
{
    const char *letter;
    int place = 0;
    TRY(check_device(device));
    if (out == NULL)
        return INVALID_VALUE;
    memset(out, 0, 16);
    for (letter = gpus[device].uuid + 4; place < 32 && *letter != '\0'; letter++) {
        const char digit[] = {*letter, '\0'};
        if (*letter == '-')
            continue;
        out[place / 2] = (unsigned char)(out[place / 2] << 4 | strtol(digit, NULL, 16));
        place++;
    }
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(unsigned char out[16], CUdevice device)
{
    GUARDED;
    return uuid_of(out, device);
}

EXPORT CUresult cuDeviceGetUuid_v2(unsigned char out[16], CUdevice device)
{
    GUARDED;
    return uuid_of(out, device);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    GUARDED;
    TRY(check_device(device));
    if (bytes == NULL)
        return INVALID_VALUE;
    *bytes = gpus[device].memory;
    return SUCCESS;
}

/* NVML reports a cluster for a GPU of a multi-host domain, and zeros for one behind the NVSwitches of a single host. */
bool offers_fabric_handles(int number)
{
    const char *cluster = machine_text("gpu.%d.fabric.cluster", number);
    const char *state = machine_text("gpu.%d.fabric.state", number);
    return cluster != NULL && cluster[strspn(cluster, "0-")] != '\0' && state != NULL && strcmp(state, "completed") == 0;
}

static int attribute_of(const struct gpu *gpu, int attribute)
{
    unsigned int place[4] = {0};
    size_t row;
    place_of(gpu->bus_id, place);
    switch (attribute) {
    case 13: /* CLOCK_RATE, kHz */
        return (int)(1000 * machine_number(0, "gpu.%d.max_clock.1", gpu->number));
    case 36: /* MEMORY_CLOCK_RATE, kHz */
        return (int)(1000 * machine_number(0, "gpu.%d.max_clock.2", gpu->number));
    case 37: /* GLOBAL_MEMORY_BUS_WIDTH, bits */
        return (int)cuda_number(0, "gpu.%d.memory_bus_bits", gpu->number);
    case 16: /* MULTIPROCESSOR_COUNT */
        return (int)machine_number((long long)cuda_number(64, "gpu.%d.multiprocessors", gpu->number),
                                   "%s.attribute.multiprocessors", gpu->prefix);
    case 20: /* COMPUTE_MODE */
        return gpu->compute_mode;
    case 32: /* ECC_ENABLED */
        return (int)machine_number(0, "gpu.%d.ecc.current", gpu->number);
    case 33: /* PCI_BUS_ID */
        return (int)place[1];
    case 34: /* PCI_DEVICE_ID */
        return (int)place[2];
    case 50: /* PCI_DOMAIN_ID */
        return (int)place[0];
    case 40: /* ASYNC_ENGINE_COUNT */
        return (int)machine_number((long long)cuda_number(2, "gpu.%d.copy_engines", gpu->number),
                                   "%s.attribute.copy_engines", gpu->prefix);
    case 75: /* COMPUTE_CAPABILITY_MAJOR */
        return gpu->major;
    case 76: /* COMPUTE_CAPABILITY_MINOR */
        return gpu->minor;
    case 88:  /* PAGEABLE_MEMORY_ACCESS */
    case 100: /* PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES */
    case 86:  /* HOST_NATIVE_ATOMIC_SUPPORTED */
        return machine_number(0, "gpu.%d.addressing_mode", gpu->number) == ATS;
    case 128: /* HANDLE_TYPE_FABRIC_SUPPORTED: of GPUs in an NVLink domain of several hosts */
        return offers_fabric_handles(gpu->number);
    case 130: /* NUMA_CONFIG */
        return machine_text("gpu.%d.memory_numa_node", gpu->number) != NULL;
    case 131: /* NUMA_ID */
        return (int)machine_number(-1, "gpu.%d.memory_numa_node", gpu->number);
    case 134: /* HOST_NUMA_ID */
        return gpu->numa;
    default:
        for (row = 0; row < LENGTH(FIXED); row++)
            if (FIXED[row].attribute == attribute)
                return FIXED[row].value;
        return 0;
    }
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    GUARDED;
    TRY(check_device(device));
    if (value == NULL || attribute < 1 || attribute > KNOWN_ATTRIBUTES)
        return INVALID_VALUE;
    *value = attribute_of(&gpus[device], attribute);
    return SUCCESS;
}
