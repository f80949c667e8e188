/* The machine's two tables: read when the library is initialised, and again when a file has changed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"

#define DEFAULT_MACHINE "/run/gpucheck-simulator"

/* nvml/table.c, which is compiled into both libraries */
struct table;
const struct table *table_refresh(const char *path, const struct table *current);
const char *table_find(const struct table *table, const char *key);
char *slurp(const char *path, struct stat *seen);
char *trim(char *text);
extern _Thread_local const struct table *view;
_Thread_local const struct table *view;

double noise, drift;
unsigned int queue_length = QUEUE_LENGTH;
bool staged_copies_block;

static char directory[PATH_MAX - 64];
static const struct table *machine, *cuda;

const char *machine_directory(void)
{
    return directory;
}

static const struct table *refreshed(const char *name, const struct table *current)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return table_refresh(path, current);
}

static const char *find(const struct table *table, const char *format, va_list arguments)
{
    char key[192];
    vsnprintf(key, sizeof key, format, arguments);
    return table == NULL ? NULL : table_find(table, key);
}

const char *machine_text(const char *format, ...)
{
    const char *value;
    va_list arguments;
    va_start(arguments, format);
    value = find(machine, format, arguments);
    va_end(arguments);
    return value;
}

const char *cuda_text(const char *format, ...)
{
    const char *value;
    va_list arguments;
    va_start(arguments, format);
    value = find(cuda, format, arguments);
    va_end(arguments);
    return value;
}

long long machine_number(long long otherwise, const char *format, ...)
{
    const char *value;
    char *end;
    long long number;
    va_list arguments;
    va_start(arguments, format);
    value = find(machine, format, arguments);
    va_end(arguments);
    if (value == NULL)
        return otherwise;
    number = strtoll(value, &end, 0);
    return end == value ? otherwise : number;
}

double cuda_number(double otherwise, const char *format, ...)
{
    const char *value;
    char *end;
    double number;
    va_list arguments;
    va_start(arguments, format);
    value = find(cuda, format, arguments);
    va_end(arguments);
    if (value == NULL)
        return otherwise;
    number = strtod(value, &end);
    return end == value ? otherwise : number;
}

int driver_version(void)
{
    const char *chosen = getenv("GPUCHECK_CUDA_VERSION");
    return chosen != NULL && *chosen != '\0' ? atoi(chosen) : (int)cuda_number(12000, "version");
}

bool machine_lost(int gpu)
{
    return machine_text("gpu.%d.error", gpus[gpu].number) != NULL;
}

bool machine_lacks(const char *node)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/software.json", directory);
    if (access(path, F_OK) != 0)
        return false; /* a machine whose packages and nodes are the operating system's */
    snprintf(path, sizeof path, "%s/root/dev/%s", directory, node);
    return access(path, F_OK) != 0;
}

/*
 * The library's own version. cuda.txt states it of a machine that has its libraries in D/lib; where a package installed
 * the library, its file name does (libcuda.so.580.178.04), as for a real one.
 */
static const char *own_version(char *path)
{
    static const char stem[] = "/libcuda.so.";
    const char *name;
    Dl_info self;
    snprintf(path, PATH_MAX, "%s/lib", directory);
    if (access(path, F_OK) == 0 || dladdr((const void *)stem, &self) == 0 || realpath(self.dli_fname, path) == NULL)
        return cuda_text("driver");
    name = strrchr(path, '/');
    /* libcuda.so.1 is the soname, no version */
    return strncmp(name, stem, sizeof stem - 1) == 0 && strchr(name + sizeof stem - 1, '.') != NULL
               ? name + sizeof stem - 1
               : cuda_text("driver");
}

/* Whether the kernel module is of the same version. */
static int check_module(void)
{
    char path[PATH_MAX], file[PATH_MAX], *loaded;
    const char *own = own_version(file);
    struct stat seen;
    bool same;
    snprintf(path, sizeof path, "%s/root/sys/module/nvidia/version", directory);
    if ((loaded = slurp(path, &seen)) == NULL)
        return NO_DEVICE;
    same = own != NULL && strcmp(trim(loaded), own) == 0;
    free(loaded);
    return same ? SUCCESS : SYSTEM_DRIVER_MISMATCH;
}

static void read_numbers(void)
{
    const char *length = getenv("GPUCHECK_CUDA_QUEUE");
    staged_copies_block = getenv("GPUCHECK_CUDA_BLOCKING") != NULL;
    noise = cuda_number(0, "noise");
    drift = cuda_number(0, "drift");
    seed_noise((unsigned long long)cuda_number(0, "seed"));
    queue_length = length != NULL && atoi(length) > 0 ? (unsigned int)atoi(length) : QUEUE_LENGTH;
}

/* NVSwitch is not initialized: what fabric manager does on a running host changes machine.txt. */
static bool fabric_is_down(void)
{
    const long long count = (long long)cuda_number(0, "gpu.count");
    long long gpu;
    for (gpu = 0; gpu < count; gpu++) {
        const char *state = machine_text("gpu.%lld.fabric.state", gpu);
        if (state != NULL && strcmp(state, "completed") != 0)
            return true;
    }
    return false;
}

/* False where there is no simulated machine. */
bool machine_peek(void)
{
    const char *chosen = getenv("GPUCHECK_SIMULATOR");
    if (machine != NULL && cuda != NULL)
        return true;
    if (chosen == NULL || *chosen == '\0')
        chosen = access(DEFAULT_MACHINE "/simulation.json", F_OK) == 0 ? DEFAULT_MACHINE : "";
    if (snprintf(directory, sizeof directory, "%s", chosen) >= (int)sizeof directory || *directory == '\0')
        return false;
    machine = refreshed("machine.txt", NULL);
    cuda = refreshed("cuda.txt", NULL);
    return machine != NULL && cuda != NULL;
}

int machine_open(void)
{
    int result;
    if (!machine_peek())
        return NO_DEVICE;
    if ((result = check_module()) != SUCCESS)
        return result;
    if (machine_lacks("nvidiactl"))
        return NO_DEVICE;
    if (machine_lacks("nvidia-uvm"))
        return UNKNOWN;
    read_numbers();
    return fabric_is_down() ? SYSTEM_NOT_READY : (int)cuda_number(SUCCESS, "init.error");
}

/* The machine can change while programs run, as when a GPU is lost. */
void machine_refresh(void)
{
    const struct table *before = cuda;
    machine = refreshed("machine.txt", machine);
    cuda = refreshed("cuda.txt", cuda);
    if (cuda != before) {
        read_numbers();
        routes_read();
    }
}
