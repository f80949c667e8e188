/*
 * A SIMULATED libnvidia-ml.so.1: responds to NVML calls from a text file instead of a driver. The files:
 *
 *   table.c     reading machine.txt             device.c    identity and state of a GPU
 *   session.c   init, entering a call           memory.c    memory and processes
 *   handles.c   GPUs and MIG devices            pcie.c      PCIe link and counters
 *   system.c    driver and library              nvlink.c    NVLink and NVSwitch fabric
 *   events.c    event sets                      pairs.c     two GPUs, CPUs near a GPU
 *   fields.c    nvmlDeviceGetFieldValues        ecc.c       memory errors and repairs
 *
 * Every other function that NVML exports is generated from exports.txt when the library is built.
 *
 * The machine is a directory D: $GPUCHECK_SIMULATOR, else /run/gpucheck-simulator if D/simulation.json exists there.
 *   D/machine.txt                       `key = value` lines, the only source of values; read again when it changes
 *   D/root/sys/module/nvidia/version    the loaded kernel module: absent -> DRIVER_NOT_LOADED, other version -> mismatch
 *
 * An absent key is NOT_SUPPORTED, never a zero. The values:
 *   12  0x1a  text              what is returned
 *   !15                         the return code 15
 *   3+0.5/s                     a counter: 3 when machine.txt was written, then one more every 2 seconds
 *   <key>.load = ...            returned instead of <key> while $GPUCHECK_SIMULATOR_LOAD is set: the GPUs are busy
 *   call.<function> = hang | hang-uninterruptible | crash | <code>      what that function does instead of returning
 *   call.field.<id> = <code>    what a field value returns
 *   text.<function> = latin1 | empty | garbage      what that function writes instead of its text
 *   gpu.<n>.call.<function>, gpu.<n>.call.field.<id>, gpu.<n>.text.<function>      the same for one GPU
 *   gpu.<n>.error = <code>      what every call about that GPU returns
 *   init.seconds = 1.5          how long the first handle of each GPU takes
 * <function> may leave out the version at its end.
 * Layouts and return codes: nvml.h as mirrored by nvidia-ml-py 13.615.71.
 */
#ifndef GPUCHECK_SIMULATOR_H
#define GPUCHECK_SIMULATOR_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_GPUS 128
#define MAX_MIG 8
#define MAX_NUMBERS 7 /* of one struct */
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

typedef enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18,
    INSUFFICIENT_RESOURCES = 23,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
} nvmlReturn_t;

/* The caller returns what this call returns, unless it succeeds. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const nvmlReturn_t result_of_call = (call);                                                                    \
        if (result_of_call != SUCCESS)                                                                                 \
            return result_of_call;                                                                                     \
    } while (0)

typedef const char *nvmlDevice_t;

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

#define NO_GPU (-1)

/* What a call is about: a GPU, or a MIG device of it (mig -1: the whole GPU). Its keys begin with `prefix`. */
struct subject { char prefix[40]; int gpu, mig; };

/* table.c */
struct table;
const struct table *table_refresh(const char *path, const struct table *current);
const char *table_find(const struct table *table, const char *key);
double table_age(const struct table *table);
char *slurp(const char *path, struct stat *seen);
char *trim(char *text);
nvmlReturn_t parse_number(const char *value, unsigned long long *out, const char **rest);
nvmlReturn_t find_text(const char **out, const char *format, ...) __attribute__((format(printf, 2, 3)));
nvmlReturn_t find_number(unsigned long long *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
unsigned long long number_or(unsigned long long otherwise, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* session.c */
extern _Thread_local const struct table *view; /* the table that this thread's call in progress reads */
const char *own_version(void);
nvmlReturn_t enter(const char *call);
nvmlReturn_t enter_gpu(int gpu);
nvmlReturn_t forced(const char *call, int gpu);
void wake(int gpu);
void write_text(char *out, size_t length, const char *value);

/* handles.c */
int gpu_count(void);
int parse_bus_id(const char *words, unsigned int out[3]);
nvmlReturn_t check_handle(nvmlDevice_t device, struct subject *out);
nvmlReturn_t check_device(nvmlDevice_t device, struct subject *out);
nvmlReturn_t enter_device(const char *call, nvmlDevice_t device, struct subject *out);

/* device.c: the results that are one value, and what to check on the way to it. A NULL `out` is INVALID_ARGUMENT. */
nvmlReturn_t copy_text(char *out, unsigned int length, const char *value);
nvmlReturn_t device_wide(const char *call, nvmlDevice_t device, const char *key, unsigned long long *out);
nvmlReturn_t device_numbers(const char *call, nvmlDevice_t device, size_t count, const char *const *keys,
                            unsigned int *const *out);
nvmlReturn_t device_number(const char *call, nvmlDevice_t device, const char *key, unsigned int *out);
nvmlReturn_t device_pair(const char *call, nvmlDevice_t device, const char *const keys[2], unsigned int *first,
                         unsigned int *second);
nvmlReturn_t device_text(const char *call, nvmlDevice_t device, const char *key, char *out, unsigned int length);

/* pcie.c */
nvmlReturn_t fill_pci(nvmlPciInfo_t *out, const char *prefix);

/* One row a function: its name and the key that it reads. */
#define NUMBER(function, key)                                                                                          \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *out) { return device_number(#function, device, key, out); }
#define WIDE(function, key)                                                                                            \
    nvmlReturn_t function(nvmlDevice_t device, unsigned long long *out) { return device_wide(#function, device, key, out); }
#define PAIR(function, first, second)                                                                                  \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *a, unsigned int *b)                                       \
    {                                                                                                                  \
        static const char *const keys[] = {first, second};                                                             \
        return device_pair(#function, device, keys, a, b);                                                             \
    }
#define TEXT(function, key)                                                                                            \
    nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned int length)                                         \
    {                                                                                                                  \
        return device_text(#function, device, key, out, length);                                                       \
    }
/* (device, which, out): the key ends in the caller's selector, which must be below `limit` */
#define CHOICE(function, key, limit)                                                                                   \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int which, unsigned int *out)                                  \
    {                                                                                                                  \
        char full[64];                                                                                                 \
        snprintf(full, sizeof full, key ".%u", which);                                                                 \
        return device_number(#function, device, full, which < (limit) ? out : NULL);                                   \
    }
/* (device, struct {version, value}): one number behind a version that must be right */
#define VERSIONED(function, key, right)                                                                                \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int out[2])                                                    \
    {                                                                                                                  \
        unsigned int value;                                                                                            \
        nvmlReturn_t result = device_number(#function, device, key, out == NULL ? NULL : &value);                      \
        if (result == SUCCESS && out[0] != (right))                                                                    \
            return ARGUMENT_VERSION_MISMATCH;                                                                          \
        if (result == SUCCESS)                                                                                         \
            out[1] = value;                                                                                            \
        return result;                                                                                                 \
    }

#endif
