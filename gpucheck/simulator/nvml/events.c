/* Event sets. Nothing ever happens on a simulated GPU but its loss, so a wait ends by that or by its time. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "simulator.h"

#define SETS 64
#define LOOK_AGAIN_MS 20

struct event_set { int used; unsigned long long masks[MAX_GPUS]; };
typedef struct event_set *nvmlEventSet_t;

static struct event_set sets[SETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int is_set(const struct event_set *set)
{
    uintptr_t offset = (uintptr_t)set - (uintptr_t)sets;
    return offset < sizeof sets && offset % sizeof *sets == 0 && set->used;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
    size_t free = 0;
    TRY(enter(__func__));
    if (out == NULL)
        return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    while (free < SETS && sets[free].used)
        free++;
    if (free < SETS) {
        sets[free] = (struct event_set){.used = 1};
        *out = &sets[free];
    }
    pthread_mutex_unlock(&lock);
    return free < SETS ? SUCCESS : INSUFFICIENT_RESOURCES;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    TRY(enter(__func__));
    if (!is_set(set))
        return INVALID_ARGUMENT;
    set->used = 0;
    return SUCCESS;
}

/* A kind of event that the GPU cannot report is NOT_SUPPORTED, none at all INVALID_ARGUMENT. */
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long kinds, nvmlEventSet_t set)
{
    struct subject subject;
    unsigned long long supported;
    TRY(enter_device(__func__, device, &subject));
    if (!is_set(set) || kinds == 0)
        return INVALID_ARGUMENT;
    TRY(find_number(&supported, "%s.event_types", subject.prefix));
    if ((kinds & ~supported) != 0)
        return NOT_SUPPORTED;
    set->masks[subject.gpu] |= kinds;
    return SUCCESS;
}

static nvmlReturn_t lost(const struct event_set *set)
{
    int gpu;
    for (gpu = 0; gpu < gpu_count(); gpu++)
        if (set->masks[gpu] != 0 && number_or(SUCCESS, "gpu.%d.error", gpu) == GPU_IS_LOST)
            return GPU_IS_LOST;
    return SUCCESS;
}

static nvmlReturn_t wait_for(const char *call, nvmlEventSet_t set, void *data, unsigned int milliseconds)
{
    nvmlReturn_t result;
    while ((result = enter(call)) == SUCCESS) {
        unsigned int step = milliseconds < LOOK_AGAIN_MS ? milliseconds : LOOK_AGAIN_MS;
        struct timespec rest = {0, (long)step * 1000000};
        if (data == NULL || !is_set(set))
            return INVALID_ARGUMENT;
        if (lost(set) != SUCCESS)
            return GPU_IS_LOST;
        if (milliseconds == 0)
            return TIMEOUT;
        while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
            ;
        milliseconds -= step;
    }
    return result;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, void *data, unsigned int milliseconds)
{
    return wait_for(__func__, set, data, milliseconds);
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, void *data, unsigned int milliseconds)
{
    return wait_for(__func__, set, data, milliseconds);
}
