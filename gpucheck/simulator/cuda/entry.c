/* cuGetProcAddress: which function a program gets for a name. A name that is not here is one that the driver lacks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

#define NOT_IN_DRIVER 1  /* CUdriverProcAddressQueryResult */
#define NEWER_THAN_ASKED 2

typedef CUresult (*entry)();

EXPORT CUresult cuGetProcAddress(const char *name, entry *out, int version, uint64_t flags);
EXPORT CUresult cuGetProcAddress_v2(const char *name, entry *out, int version, uint64_t flags, int *status);

/* The types are those of the files that define them; here only the address counts. */
#define ENTRY(name, since, function) extern CUresult function();
#define NONE(name, since)
#include "entries.h"
#undef ENTRY
#undef NONE

#define ENTRY(name, since, function) {#name, since, (entry)function},
#define NONE(name, since) {#name, since, NULL},
static const struct { const char *name; int since; entry function; } ENTRIES[] = {
#include "entries.h"
};

/* A driver without a function, for tests: its names in GPUCHECK_CUDA_WITHOUT. */
static bool taken_away(const char *name)
{
    const char *list = getenv("GPUCHECK_CUDA_WITHOUT");
    const size_t length = strlen(name);
    while (list != NULL && *list != '\0') {
        const size_t word = strcspn(list, ",");
        if (word == length && strncmp(list, name, length) == 0)
            return true;
        list += word + (list[word] == ',');
    }
    return false;
}

/* The newest that is neither newer than what was requested nor than the driver. */
static CUresult look_up(const char *name, entry *out, int version, int *status)
{
    const int own = driver_version();
    bool newer = false;
    size_t row;
    *out = NULL;
    for (row = 0; row < LENGTH(ENTRIES); row++) {
        if (strcmp(ENTRIES[row].name, name) != 0 || ENTRIES[row].since > own || taken_away(name))
            continue;
        if (ENTRIES[row].since > version)
            newer = true;
        else
            *out = ENTRIES[row].function;
    }
    *status = *out != NULL ? 0 : newer ? NEWER_THAN_ASKED : NOT_IN_DRIVER;
    return *out != NULL ? SUCCESS : NOT_FOUND;
}

/* Once, for the user of a framework, whose own message is that the driver is too old. Bindings look up all names. */
static void say_what_is_missing(const char *name, const void *caller)
{
    static bool printed;
    char line[256];
    Dl_info who;
    if (printed || *name == '\0' || taken_away(name) || dladdr(caller, &who) == 0 || who.dli_fname == NULL
        || strstr(who.dli_fname, "cydriver") != NULL || strstr(who.dli_fname, "ffi") != NULL
        || strstr(who.dli_fname, "_ctypes") != NULL)
        return;
    printed = true;
    snprintf(line, sizeof line,
             "gpucheck: the simulated CUDA driver has copies only, no %.60s: PyTorch, TensorFlow and other frameworks are "
             "not supported on a simulated GPU\n", name);
    (void)!write(STDERR_FILENO, line, strlen(line));
}

CUresult cuGetProcAddress_v2(const char *name, entry *out, int version, uint64_t flags, int *status)
{
    GUARDED;
    int spare;
    CUresult result;
    (void)flags;
    if (name == NULL || out == NULL)
        return INVALID_VALUE;
    machine_peek();
    result = look_up(name, out, version, status != NULL ? status : &spare);
    if (result != SUCCESS)
        say_what_is_missing(name, __builtin_return_address(0));
    return result;
}

CUresult cuGetProcAddress(const char *name, entry *out, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
