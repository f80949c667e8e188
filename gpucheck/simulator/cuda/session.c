/* cuInit, and what every call passes through: is the library in use, which context is this, is it still healthy? */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

/* One call at a time; a wait gives the lock away. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready, forked;

/* The driver's threads and memory do not come along into a child: each of its calls answers NOT_INITIALIZED, cuInit too. */
static void in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    forked = forked || ready;
    ready = false;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

void *lock_session(void)
{
    pthread_mutex_lock(&lock);
    return &lock;
}

void unlock_session(void *held)
{
    (void)held;
    pthread_mutex_unlock(&lock);
}

void let_others(unsigned int tries)
{
    struct timespec rest = {0, tries < 20 ? 20000 : tries < 200 ? 200000 : 2000000};
    pthread_mutex_unlock(&lock);
    nanosleep(&rest, NULL);
    pthread_mutex_lock(&lock);
}

/* A driver whose calls fail, for tests: cuInit=805,cuMemAlloc=2 in GPUCHECK_CUDA_ERROR. */
CUresult stated_error(const char *call)
{
    const char *list = getenv("GPUCHECK_CUDA_ERROR");
    const size_t length = strlen(call);
    while (list != NULL && *list != '\0') {
        const size_t word = strcspn(list, ",");
        if (word > length && strncmp(list, call, length) == 0 && list[length] == '=')
            return (CUresult)atoi(list + length + 1);
        list += word + (list[word] == ',');
    }
    return SUCCESS;
}

EXPORT CUresult cuInit(unsigned int flags)
{
    GUARDED;
    CUresult result;
    if (flags != 0)
        return INVALID_VALUE;
    if (ready || forked)
        return ready ? SUCCESS : NOT_INITIALIZED;
    if ((result = stated_error("cuInit")) != SUCCESS)
        return result;
    if ((result = (CUresult)machine_open()) != SUCCESS || (result = visible_read()) != SUCCESS)
        return result;
    ready = true;
    return SUCCESS;
}

CUresult initialized(void)
{
    return ready ? SUCCESS : NOT_INITIALIZED;
}

CUresult check_device(CUdevice device)
{
    if (!ready)
        return NOT_INITIALIZED;
    return device < 0 || device >= gpu_count ? INVALID_DEVICE : SUCCESS;
}

CUresult enter(CUcontext *context)
{
    if (!ready)
        return NOT_INITIALIZED;
    *context = current_context();
    if (*context == NULL)
        return INVALID_CONTEXT;
    if (!(*context)->alive)
        return CONTEXT_IS_DESTROYED;
    return (*context)->sticky;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    GUARDED;
    if (version == NULL)
        return INVALID_VALUE;
    *version = machine_peek() ? driver_version() : 0;
    return SUCCESS;
}
