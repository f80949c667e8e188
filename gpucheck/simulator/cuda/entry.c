/* cuGetProcAddress: which function a program gets for a name. A name that is not here is one that the driver lacks. */
#include <stdlib.h>
#include <string.h>

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

CUresult cuGetProcAddress_v2(const char *name, entry *out, int version, uint64_t flags, int *status)
{
    GUARDED;
    int spare;
    (void)flags;
    if (name == NULL || out == NULL)
        return INVALID_VALUE;
    machine_peek();
    return look_up(name, out, version, status != NULL ? status : &spare);
}

CUresult cuGetProcAddress(const char *name, entry *out, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
