/*
 * A SIMULATED libnvidia-ml.so.1: answers NVML calls from a text file instead of a driver.
 *
 * The machine is a directory D: $GPUCHECK_SIMULATOR, else /run/gpucheck-simulator if D/simulation.json exists there.
 *   D/machine.txt                       `key = value` lines, the only source of answers; read again when it changes
 *   D/root/sys/module/nvidia/version    the loaded kernel module: absent -> DRIVER_NOT_LOADED, other version -> mismatch
 * The library's own version is the one in its file name (libnvidia-ml.so.580.178.04), as with the real library.
 *
 * An absent key is NOT_SUPPORTED, never a zero. A value `!15` is the return code 15.
 *   call.<function> = hang | crash | <code>     what that function does instead of answering
 *   gpu.<n>.error = <code>                      what every call about that GPU returns
 *   gpu.<n>.fabric.state = completed            or in-progress, not-started, not-supported
 * Layouts and return codes: nvml.h as mirrored by nvidia-ml-py 13.615.71.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef DRIVER_VERSION
#define DRIVER_VERSION "0.0"
#endif
#define DEFAULT_MACHINE "/run/gpucheck-simulator"
#define MAX_GPUS 64
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

typedef enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    LIB_RM_VERSION_MISMATCH = 18,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
} nvmlReturn_t;

typedef const char *nvmlDevice_t;

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned int version, sensor; int temperature; } nvmlTemperature_t;
typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct { unsigned int pid; unsigned long long memory; unsigned int gpuInstance, computeInstance; } nvmlProcessInfo_t;
typedef struct { unsigned char cluster[16]; unsigned int status, clique, state; } nvmlGpuFabricInfo_t;
typedef struct {
    unsigned int version;
    unsigned char cluster[16];
    unsigned int status, clique, state, healthMask;
    unsigned char healthSummary; /* from version 3 on */
} nvmlGpuFabricInfoV_t;
typedef struct {
    unsigned int fieldId, scopeId;
    int64_t timestamp, latencyUsec;
    unsigned int valueType, nvmlReturn;
    union { unsigned int ui; unsigned long long ull; } value;
} nvmlFieldValue_t;

/* ---- the table ---- */

struct entry { char *key, *value; };
struct table { struct entry *entries; size_t count; struct stat seen; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int references;
static char machine[PATH_MAX - 64], own_version[64] = DRIVER_VERSION;
static const struct table *latest;           /* older tables stay allocated: another thread may still read one */
static __thread const struct table *view;    /* the table that this thread's call in progress answers from */
static const char handles[MAX_GPUS];         /* a device handle is the address of its slot */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->key, ((const struct entry *)b)->key);
}

static char *trim(char *text)
{
    char *end;
    while (isspace((unsigned char)*text))
        text++;
    for (end = text + strlen(text); end > text && isspace((unsigned char)end[-1]); end--)
        ;
    *end = '\0';
    return text;
}

/* The whole file, NUL-terminated, or NULL. */
static char *slurp(const char *path, struct stat *seen)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    if (file == NULL)
        return NULL;
    if (fstat(fileno(file), seen) == 0 && (text = calloc(1, (size_t)seen->st_size + 1)) != NULL)
        text[fread(text, 1, (size_t)seen->st_size, file)] = '\0';
    fclose(file);
    return text;
}

/* Values point into the file's text, which lives as long as the table. NULL, and one line on stderr, if unreadable. */
static struct table *parse(const char *path)
{
    struct table *table = calloc(1, sizeof *table);
    char *line, *equals, *rest = table == NULL ? NULL : slurp(path, &table->seen);
    size_t lines = 2, number = 0;
    if (rest == NULL) {
        fprintf(stderr, "gpucheck simulator: %s: cannot be read\n", path);
        free(table);
        return NULL;
    }
    for (line = rest; *line != '\0'; line++)
        lines += *line == '\n';
    table->entries = calloc(lines, sizeof *table->entries);
    while (table->entries != NULL && (line = strsep(&rest, "\n")) != NULL) {
        number++;
        line = trim(line);
        if (*line == '\0' || *line == '#')
            continue;
        if ((equals = strchr(line, '=')) == NULL) {
            fprintf(stderr, "gpucheck simulator: %s line %zu: no '=' in it\n", path, number);
            return NULL;
        }
        *equals = '\0';
        table->entries[table->count].key = trim(line);
        table->entries[table->count++].value = trim(equals + 1);
    }
    if (table->entries != NULL)
        qsort(table->entries, table->count, sizeof *table->entries, by_key);
    return table->entries == NULL ? NULL : table;
}

/* Read machine.txt again if it changed. A file that cannot be read now leaves the old answers. */
static void refresh(void)
{
    char path[PATH_MAX];
    struct stat now;
    const struct table *fresh;
    snprintf(path, sizeof path, "%s/machine.txt", machine);
    if (stat(path, &now) != 0)
        return;
    if (latest != NULL && now.st_ino == latest->seen.st_ino && now.st_size == latest->seen.st_size &&
        now.st_mtim.tv_sec == latest->seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == latest->seen.st_mtim.tv_nsec)
        return;
    if ((fresh = parse(path)) != NULL)
        latest = fresh;
}

static const char *find(const char *format, va_list arguments)
{
    char key[160];
    struct entry wanted = {key, NULL}, *found;
    vsnprintf(key, sizeof key, format, arguments);
    found = bsearch(&wanted, view->entries, view->count, sizeof wanted, by_key);
    return found == NULL ? NULL : found->value;
}

static nvmlReturn_t text(const char **out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    *out = find(format, arguments);
    va_end(arguments);
    if (*out == NULL)
        return NOT_SUPPORTED;
    return **out == '!' ? (nvmlReturn_t)atoi(*out + 1) : SUCCESS;
}

static nvmlReturn_t number(unsigned long long *out, const char *format, ...)
{
    va_list arguments;
    const char *value;
    char *end;
    va_start(arguments, format);
    value = find(format, arguments);
    va_end(arguments);
    if (value == NULL)
        return NOT_SUPPORTED;
    if (*value == '!')
        return (nvmlReturn_t)atoi(value + 1);
    *out = strtoull(value, &end, 0);
    return end == value ? UNKNOWN : SUCCESS;
}

/* Registration of a GPU with the NVSwitch fabric: its number in NVML. NOT_SUPPORTED where the GPU has none to report. */
static nvmlReturn_t fabric_state(unsigned int *out, int gpu)
{
    static const char *const states[] = {"not-supported", "not-started", "in-progress", "completed"};
    const char *word;
    nvmlReturn_t result = text(&word, "gpu.%d.fabric.state", gpu);
    if (result != SUCCESS)
        return result;
    for (*out = 0; *out < LENGTH(states); ++*out)
        if (strcmp(word, states[*out]) == 0)
            return SUCCESS;
    return UNKNOWN;
}

static unsigned long long count_of(const char *format, int gpu)
{
    unsigned long long value;
    return number(&value, format, gpu) == SUCCESS ? value : 0;
}

/* ---- entering a call ---- */

static nvmlReturn_t forced(const char *call)
{
    const char *outcome;
    if (text(&outcome, "call.%s", call) == NOT_SUPPORTED)
        return SUCCESS;
    while (strcmp(outcome, "hang") == 0)
        pause();
    if (strcmp(outcome, "crash") == 0)
        abort();
    return (nvmlReturn_t)atoi(outcome);
}

static nvmlReturn_t enter(const char *call)
{
    pthread_mutex_lock(&lock);
    if (references > 0)
        refresh();
    view = references > 0 ? latest : NULL;
    pthread_mutex_unlock(&lock);
    return view == NULL ? UNINITIALIZED : forced(call);
}

static int gpu_count(void)
{
    unsigned long long count;
    return number(&count, "gpu.count") == SUCCESS && count <= MAX_GPUS ? (int)count : 0;
}

static nvmlReturn_t check_device(nvmlDevice_t device, int *gpu)
{
    uintptr_t offset = (uintptr_t)device - (uintptr_t)handles;
    unsigned long long error;
    if (offset >= (uintptr_t)gpu_count())
        return INVALID_ARGUMENT;
    *gpu = (int)offset;
    return number(&error, "gpu.%d.error", *gpu) == SUCCESS ? (nvmlReturn_t)error : SUCCESS;
}

static nvmlReturn_t enter_device(const char *call, nvmlDevice_t device, int *gpu)
{
    nvmlReturn_t result = enter(call);
    return result == SUCCESS ? check_device(device, gpu) : result;
}

/* A link past the last one is INVALID_ARGUMENT, a GPU without NVLink NOT_SUPPORTED. */
static nvmlReturn_t enter_link(const char *call, nvmlDevice_t device, unsigned int link, int *gpu)
{
    unsigned long long links = 0;
    nvmlReturn_t result = enter_device(call, device, gpu);
    if (result == SUCCESS)
        result = number(&links, "gpu.%d.nvlink.count", *gpu);
    return result == SUCCESS && link >= links ? INVALID_ARGUMENT : result;
}

static nvmlReturn_t copy_text(char *out, unsigned int length, const char *value)
{
    if (out == NULL)
        return INVALID_ARGUMENT;
    if (strlen(value) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

/* ---- library and system ---- */

static void learn_own_version(void)
{
    static const char stem[] = "libnvidia-ml.so.";
    char path[PATH_MAX];
    const char *name;
    Dl_info self;
    if (dladdr((const void *)handles, &self) == 0 || realpath(self.dli_fname, path) == NULL)
        return;
    name = strrchr(path, '/') + 1;
    /* libnvidia-ml.so.1 is the soname, no version */
    if (strncmp(name, stem, sizeof stem - 1) == 0 && strchr(name + sizeof stem - 1, '.') != NULL)
        snprintf(own_version, sizeof own_version, "%s", name + sizeof stem - 1);
}

static nvmlReturn_t attach(void)
{
    const char *chosen = getenv("GPUCHECK_SIMULATOR");
    char path[PATH_MAX], *loaded;
    struct stat seen;
    nvmlReturn_t result;
    if (chosen == NULL || *chosen == '\0')
        chosen = access(DEFAULT_MACHINE "/simulation.json", F_OK) == 0 ? DEFAULT_MACHINE : "";
    if (snprintf(machine, sizeof machine, "%s", chosen) >= (int)sizeof machine || *machine == '\0')
        return DRIVER_NOT_LOADED;
    learn_own_version();
    snprintf(path, sizeof path, "%s/root/sys/module/nvidia/version", machine);
    if ((loaded = slurp(path, &seen)) == NULL)
        return DRIVER_NOT_LOADED;
    /* sysfs files claim 4096 bytes and hold fewer: trim() ends the text where the content ends */
    result = strcmp(trim(loaded), own_version) == 0 ? SUCCESS : LIB_RM_VERSION_MISMATCH;
    free(loaded);
    if (result != SUCCESS)
        return result;
    latest = NULL;
    refresh();
    view = latest;
    return latest == NULL ? UNKNOWN : forced("nvmlInit");
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    nvmlReturn_t result = SUCCESS;
    (void)flags;
    pthread_mutex_lock(&lock);
    if (references == 0)
        result = attach();
    if (result == SUCCESS)
        references++;
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result;
    pthread_mutex_lock(&lock);
    result = references > 0 ? SUCCESS : UNINITIALIZED;
    references -= references > 0;
    pthread_mutex_unlock(&lock);
    return result;
}

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

/* The profile that answers; NULL before nvmlInit. The real library has no such symbol: a client can tell by it. */
const char *gpucheck_simulator_profile(void)
{
    const char *profile;
    return enter(__func__) == SUCCESS && text(&profile, "profile") == SUCCESS ? profile : NULL;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    nvmlReturn_t result = enter(__func__);
    return result == SUCCESS ? copy_text(version, length, own_version) : result;
}

/* NVML calls its CUDA version x.y by branch (580 -> 13.0), and itself <CUDA major>.<driver version>. */
static nvmlReturn_t cuda_version(const char *call, int *version)
{
    unsigned long long value;
    nvmlReturn_t result = enter(call);
    if (result == SUCCESS)
        result = version == NULL ? INVALID_ARGUMENT : number(&value, "cuda.%d", atoi(own_version));
    if (result == SUCCESS)
        *version = (int)value;
    return result;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return cuda_version(__func__, version); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return cuda_version(__func__, version); }

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char words[96];
    int cuda;
    nvmlReturn_t result = cuda_version(__func__, &cuda);
    if (result != SUCCESS)
        return result;
    snprintf(words, sizeof words, "%d.%s", cuda / 1000, own_version);
    return copy_text(version, length, words);
}

/* ---- handles ---- */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    nvmlReturn_t result = enter(__func__);
    if (result == SUCCESS && count == NULL)
        result = INVALID_ARGUMENT;
    if (result == SUCCESS)
        *count = (unsigned int)gpu_count();
    return result;
}

static nvmlReturn_t hand_out(int gpu, nvmlDevice_t *device)
{
    int same;
    *device = &handles[gpu];
    return check_device(*device, &same);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    nvmlReturn_t result = enter(__func__);
    if (result != SUCCESS)
        return result;
    return device == NULL || index >= (unsigned int)gpu_count() ? INVALID_ARGUMENT : hand_out((int)index, device);
}

static int parse_bus_id(const char *words, unsigned int *domain, unsigned int *bus, unsigned int *slot)
{
    unsigned int function;
    if (sscanf(words, "%x:%x:%x.%x", domain, bus, slot, &function) == 4)
        return 1;
    *domain = 0;
    return sscanf(words, "%x:%x.%x", bus, slot, &function) == 3;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned int wanted[3], seen[3];
    const char *words;
    int gpu;
    nvmlReturn_t result = enter(__func__);
    if (result != SUCCESS)
        return result;
    if (bus_id == NULL || device == NULL || !parse_bus_id(bus_id, &wanted[0], &wanted[1], &wanted[2]))
        return INVALID_ARGUMENT;
    for (gpu = 0; gpu < gpu_count(); gpu++)
        if (text(&words, "gpu.%d.bus_id", gpu) == SUCCESS && parse_bus_id(words, &seen[0], &seen[1], &seen[2]) &&
            memcmp(wanted, seen, sizeof seen) == 0)
            return hand_out(gpu, device);
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    const char *words;
    int gpu;
    nvmlReturn_t result = enter(__func__);
    if (result != SUCCESS)
        return result;
    if (uuid == NULL || device == NULL)
        return INVALID_ARGUMENT;
    for (gpu = 0; gpu < gpu_count(); gpu++)
        if (text(&words, "gpu.%d.uuid", gpu) == SUCCESS && strcmp(words, uuid) == 0)
            return hand_out(gpu, device);
    return NOT_FOUND;
}

/* ---- one number or one text about a GPU: a row each ---- */

static nvmlReturn_t device_wide(const char *call, nvmlDevice_t device, const char *key, unsigned long long *out)
{
    int gpu;
    nvmlReturn_t result = enter_device(call, device, &gpu);
    if (result != SUCCESS)
        return result;
    return out == NULL ? INVALID_ARGUMENT : number(out, "gpu.%d.%s", gpu, key);
}

static nvmlReturn_t device_number(const char *call, nvmlDevice_t device, const char *key, unsigned int *out)
{
    unsigned long long value;
    nvmlReturn_t result = device_wide(call, device, key, out == NULL ? NULL : &value);
    if (result == SUCCESS)
        *out = (unsigned int)value;
    return result;
}

static nvmlReturn_t device_pair(const char *call, nvmlDevice_t device, const char *const keys[2], unsigned int *first,
                                unsigned int *second)
{
    nvmlReturn_t result = device_number(call, device, keys[0], first);
    return result == SUCCESS ? device_number(call, device, keys[1], second) : result;
}

static nvmlReturn_t device_text(const char *call, nvmlDevice_t device, const char *key, char *out, unsigned int length)
{
    const char *value;
    int gpu;
    nvmlReturn_t result = enter_device(call, device, &gpu);
    if (result == SUCCESS)
        result = out == NULL ? INVALID_ARGUMENT : text(&value, "gpu.%d.%s", gpu, key);
    return result == SUCCESS ? copy_text(out, length, value) : result;
}

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

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
NUMBER(nvmlDeviceGetIndex, "index")
NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetBrand, "brand")
NUMBER(nvmlDeviceGetArchitecture, "architecture")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetDisplayMode, "display_mode")
NUMBER(nvmlDeviceGetDisplayActive, "display_active")
NUMBER(nvmlDeviceGetPerformanceState, "performance_state")
NUMBER(nvmlDeviceGetFanSpeed, "fan_speed")
NUMBER(nvmlDeviceGetPowerUsage, "power.usage_mw")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power.limit_mw")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power.default_limit_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power.enforced_limit_mw")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.generation")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.max_generation")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie.max_width")
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie.device_max_generation")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie.replays")
WIDE(nvmlDeviceGetCurrentClocksEventReasons, "clocks_event_reasons")
WIDE(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks_event_reasons")
PAIR(nvmlDeviceGetCudaComputeCapability, "compute.major", "compute.minor")
PAIR(nvmlDeviceGetDriverModel, "driver_model.current", "driver_model.pending")
PAIR(nvmlDeviceGetMigMode, "mig.current", "mig.pending")
PAIR(nvmlDeviceGetEccMode, "ecc.current", "ecc.pending")
PAIR(nvmlDeviceGetEncoderUtilization, "utilization.encoder", "utilization.sampling_us")
PAIR(nvmlDeviceGetDecoderUtilization, "utilization.decoder", "utilization.sampling_us")
CHOICE(nvmlDeviceGetClockInfo, "clock", 4)
CHOICE(nvmlDeviceGetMaxClockInfo, "max_clock", 4)
CHOICE(nvmlDeviceGetTemperature, "temperature", 1)
CHOICE(nvmlDeviceGetTemperatureThreshold, "threshold", 8)

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out)
{
    unsigned int celsius;
    nvmlReturn_t result = nvmlDeviceGetTemperature(device, out == NULL ? UINT_MAX : out->sensor, &celsius);
    if (result == SUCCESS && out->version != 0x0100000C)
        result = ARGUMENT_VERSION_MISMATCH;
    if (result == SUCCESS)
        out->temperature = (int)celsius;
    return result;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    static const char *const keys[] = {"utilization.gpu", "utilization.memory"};
    return device_pair(__func__, device, keys, out == NULL ? NULL : &out->gpu, out == NULL ? NULL : &out->memory);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    int gpu;
    nvmlReturn_t result = enter_device(__func__, device, &gpu);
    if (result == SUCCESS && is_mig == NULL)
        result = INVALID_ARGUMENT;
    if (result == SUCCESS)
        *is_mig = 0;
    return result;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int uncorrected, unsigned int aggregate,
                                         unsigned long long *out)
{
    char key[64];
    snprintf(key, sizeof key, "ecc.errors.%u.%u", uncorrected, aggregate);
    return device_wide(__func__, device, key, uncorrected < 2 && aggregate < 2 ? out : NULL);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
                                       unsigned int *pending, unsigned int *failed)
{
    static const char *const rows[] = {"remap.correctable", "remap.uncorrectable"};
    static const char *const state[] = {"remap.pending", "remap.failed"};
    nvmlReturn_t result = device_pair(__func__, device, rows, correctable, uncorrectable);
    return result == SUCCESS ? device_pair(__func__, device, state, pending, failed) : result;
}

/* ---- memory, processes ---- */

static nvmlReturn_t memory(const char *call, nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    nvmlReturn_t result = device_wide(call, device, "memory.total", &out->total);
    if (result == SUCCESS)
        result = device_wide(call, device, "memory.reserved", &out->reserved);
    if (result == SUCCESS)
        result = device_wide(call, device, "memory.used", &out->used);
    out->free = result == SUCCESS ? out->total - out->reserved - out->used : 0;
    return result;
}

/* Version 1 has no place for what the driver reserves and counts it as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    nvmlMemory_v2_t seen = {0};
    nvmlReturn_t result = memory(__func__, device, &seen);
    if (result == SUCCESS && out == NULL)
        return INVALID_ARGUMENT;
    if (result == SUCCESS)
        *out = (nvmlMemory_t){seen.total, seen.free, seen.reserved + seen.used};
    return result;
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
    unsigned long long total;
    nvmlReturn_t result = device_wide(__func__, device, "bar1.total", out == NULL ? NULL : &total);
    if (result == SUCCESS)
        *out = (nvmlMemory_t){total, total, 0};
    return result;
}

/* NULL asks for the number of processes; a buffer that is too small is told how many there are. */
static nvmlReturn_t processes(const char *call, nvmlDevice_t device, const char *kind, unsigned int *count,
                              nvmlProcessInfo_t *out)
{
    char key[64];
    unsigned int running, process, space;
    unsigned long long value;
    int gpu;
    nvmlReturn_t result = enter_device(call, device, &gpu);
    if (result != SUCCESS)
        return result;
    if (count == NULL || (out == NULL && *count != 0))
        return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "gpu.%%d.process.%s.count", kind);
    space = *count;
    *count = running = (unsigned int)count_of(key, gpu);
    if (running > space)
        return INSUFFICIENT_SIZE;
    for (process = 0; process < running; process++) {
        out[process] = (nvmlProcessInfo_t){.gpuInstance = UINT_MAX, .computeInstance = UINT_MAX};
        if (number(&value, "gpu.%d.process.%s.%u.pid", gpu, kind, process) == SUCCESS)
            out[process].pid = (unsigned int)value;
        if (number(&value, "gpu.%d.process.%s.%u.memory", gpu, kind, process) == SUCCESS)
            out[process].memory = value;
    }
    return SUCCESS;
}

#define PROCESSES(function, kind)                                                                                      \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out)                            \
    {                                                                                                                  \
        return processes(#function, device, kind, count, out);                                                         \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")

/* ---- PCI, affinity, pairs ---- */

static nvmlReturn_t fill_pci(nvmlPciInfo_t *out, const char *prefix)
{
    const char *bus_id;
    unsigned long long value;
    nvmlReturn_t result = text(&bus_id, "%s.bus_id", prefix);
    if (result != SUCCESS)
        return result;
    memset(out, 0, sizeof *out);
    if (!parse_bus_id(bus_id, &out->domain, &out->bus, &out->device))
        return UNKNOWN;
    if (number(&value, "%s.pci_device_id", prefix) == SUCCESS)
        out->pciDeviceId = (unsigned int)value;
    if (number(&value, "%s.pci_subsystem_id", prefix) == SUCCESS)
        out->pciSubSystemId = (unsigned int)value;
    snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", out->domain, out->bus & 0xFF, out->device & 0x1F);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", out->domain & 0xFFFF, out->bus & 0xFF,
             out->device & 0x1F);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    char prefix[32];
    int gpu;
    nvmlReturn_t result = enter_device(__func__, device, &gpu);
    if (result != SUCCESS)
        return result;
    snprintf(prefix, sizeof prefix, "gpu.%d", gpu);
    return out == NULL ? INVALID_ARGUMENT : fill_pci(out, prefix);
}

/* A Linux list such as 0-15,32-47 as a bit set. INSUFFICIENT_SIZE if its highest bit does not fit. */
static nvmlReturn_t bit_set(const char *list, unsigned int words, unsigned long *out)
{
    const unsigned long width = 8 * sizeof *out;
    unsigned long first, last;
    char *end;
    memset(out, 0, words * sizeof *out);
    while (isdigit((unsigned char)*list)) {
        first = last = strtoul(list, &end, 10);
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (last / width >= words)
            return INSUFFICIENT_SIZE;
        for (; first <= last; first++)
            out[first / width] |= 1UL << (first % width);
        list = *end == ',' ? end + 1 : end;
    }
    return SUCCESS;
}

static nvmlReturn_t affinity(const char *call, nvmlDevice_t device, const char *key, unsigned int words, unsigned long *out)
{
    const char *list;
    int gpu;
    nvmlReturn_t result = enter_device(call, device, &gpu);
    if (result == SUCCESS)
        result = out == NULL || words == 0 ? INVALID_ARGUMENT : text(&list, "gpu.%d.%s", gpu, key);
    return result == SUCCESS ? bit_set(list, words, out) : result;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *out)
{
    return affinity(__func__, device, "cpus", words, out);
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words, unsigned long *out,
                                                 unsigned int scope)
{
    return affinity(__func__, device, "cpus", words, scope < 2 ? out : NULL);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *out, unsigned int scope)
{
    return affinity(__func__, device, "numa_nodes", words, scope < 2 ? out : NULL);
}

static nvmlReturn_t enter_two(const char *call, nvmlDevice_t a, nvmlDevice_t b, int gpus[2])
{
    nvmlReturn_t result = enter_device(call, a, &gpus[0]);
    return result == SUCCESS ? check_device(b, &gpus[1]) : result;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, unsigned int *level)
{
    unsigned long long value;
    int gpus[2];
    nvmlReturn_t result = enter_two(__func__, a, b, gpus);
    if (result == SUCCESS)
        result = level == NULL ? INVALID_ARGUMENT : number(&value, "gpu.%d.ancestor.%d", gpus[0], gpus[1]);
    if (result == SUCCESS)
        *level = (unsigned int)value;
    return result;
}

static int outside_fabric(int gpu)
{
    unsigned int state;
    return fabric_state(&state, gpu) == SUCCESS && state != 3;
}

/* Paths through NVSwitch exist only once both GPUs are registered: until then the `.no_fabric` answer holds. */
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, unsigned int capability, unsigned int *status)
{
    unsigned long long value;
    int gpus[2];
    nvmlReturn_t result = enter_two(__func__, a, b, gpus);
    if (result == SUCCESS && (status == NULL || a == b || capability > 5))
        result = INVALID_ARGUMENT;
    if (result == SUCCESS && (outside_fabric(gpus[0]) || outside_fabric(gpus[1])) &&
        number(&value, "gpu.%d.p2p.%d.%u.no_fabric", gpus[0], gpus[1], capability) == SUCCESS)
        *status = (unsigned int)value;
    else if (result == SUCCESS && (result = number(&value, "gpu.%d.p2p.%d.%u", gpus[0], gpus[1], capability)) == SUCCESS)
        *status = (unsigned int)value;
    return result;
}

/* ---- NVLink ---- */

static nvmlReturn_t link_number(const char *call, nvmlDevice_t device, unsigned int link, const char *key, unsigned int *out)
{
    unsigned long long value;
    int gpu;
    nvmlReturn_t result = enter_link(call, device, link, &gpu);
    if (result == SUCCESS)
        result = out == NULL ? INVALID_ARGUMENT : number(&value, "gpu.%d.nvlink.%u.%s", gpu, link, key);
    if (result == SUCCESS)
        *out = (unsigned int)value;
    return result;
}

#define LINK(function, key)                                                                                            \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int link, unsigned int *out)                                   \
    {                                                                                                                  \
        return link_number(#function, device, link, key, out);                                                         \
    }
LINK(nvmlDeviceGetNvLinkState, "active")
LINK(nvmlDeviceGetNvLinkVersion, "version")
LINK(nvmlDeviceGetNvLinkRemoteDeviceType, "remote.type")

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, unsigned int capability,
                                           unsigned int *out)
{
    char key[64];
    snprintf(key, sizeof key, "capability.%u", capability);
    return link_number(__func__, device, link, key, capability < 6 ? out : NULL);
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, unsigned int counter,
                                             unsigned long long *out)
{
    int gpu;
    nvmlReturn_t result = enter_link(__func__, device, link, &gpu);
    if (result != SUCCESS)
        return result;
    return out == NULL || counter > 4 ? INVALID_ARGUMENT
                                      : number(out, "gpu.%d.nvlink.%u.errors.%u", gpu, link, counter);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *out)
{
    char prefix[64];
    int gpu;
    nvmlReturn_t result = enter_link(__func__, device, link, &gpu);
    if (result != SUCCESS)
        return result;
    snprintf(prefix, sizeof prefix, "gpu.%d.nvlink.%u.remote", gpu, link);
    return out == NULL ? INVALID_ARGUMENT : fill_pci(out, prefix);
}

static nvmlReturn_t fabric(const char *call, nvmlDevice_t device, nvmlGpuFabricInfoV_t *out)
{
    static const char *const identity[] = {"fabric.status", "fabric.clique"};
    static const char *const health[] = {"fabric.health_mask", "fabric.health_summary"};
    unsigned int summary = 0;
    int gpu;
    nvmlReturn_t result = enter_device(call, device, &gpu);
    if (result == SUCCESS)
        result = fabric_state(&out->state, gpu);
    if (result == SUCCESS)
        result = device_pair(call, device, identity, &out->status, &out->clique);
    if (result == SUCCESS)
        result = device_pair(call, device, health, &out->healthMask, &summary);
    out->healthSummary = (unsigned char)summary;
    return result;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out)
{
    nvmlGpuFabricInfoV_t seen = {0};
    nvmlReturn_t result = fabric(__func__, device, &seen);
    if (result == SUCCESS && out == NULL)
        result = INVALID_ARGUMENT;
    if (result == SUCCESS)
        *out = (nvmlGpuFabricInfo_t){.status = seen.status, .clique = seen.clique, .state = seen.state};
    return result;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out)
{
    nvmlGpuFabricInfoV_t seen = {0};
    nvmlReturn_t result = fabric(__func__, device, &seen);
    if (result == SUCCESS && out == NULL)
        result = INVALID_ARGUMENT;
    if (result != SUCCESS)
        return result;
    seen.version = out->version;
    if (out->version == 0x02000024) /* 36 bytes: the caller's struct ends before healthSummary */
        memcpy(out, &seen, 0x24);
    else if (out->version == 0x03000028)
        *out = seen;
    else
        return ARGUMENT_VERSION_MISMATCH;
    return SUCCESS;
}

/* ---- fields ---- */

/* `gpu.N.field.<id>`, or `.field.<id>.<scope>` for what exists once per link; a trailing `ull` is the wide type. */
static nvmlReturn_t field(int gpu, nvmlFieldValue_t *out)
{
    const char *value;
    char *end;
    nvmlReturn_t result = text(&value, "gpu.%d.field.%u.%u", gpu, out->fieldId, out->scopeId);
    if (result == NOT_SUPPORTED)
        result = text(&value, "gpu.%d.field.%u", gpu, out->fieldId);
    if (result != SUCCESS)
        return result;
    out->value.ull = strtoull(value, &end, 0);
    out->valueType = strcmp(end, "ull") == 0 ? 3 : 1; /* UNSIGNED_LONG_LONG, UNSIGNED_INT */
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    struct timespec now;
    int gpu, index;
    nvmlReturn_t result = enter_device(__func__, device, &gpu);
    if (result != SUCCESS)
        return result;
    if (values == NULL || count < 1)
        return INVALID_ARGUMENT;
    clock_gettime(CLOCK_REALTIME, &now);
    for (index = 0; index < count; index++) {
        values[index].timestamp = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
        values[index].latencyUsec = 0;
        values[index].nvmlReturn = field(gpu, &values[index]);
    }
    return SUCCESS;
}
