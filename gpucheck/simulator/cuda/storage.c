/*
 * Allocation. A device address is a reserved range that nothing is mapped to: a program that reads it through the CPU
 * dies, as with a real one. Pinned memory is a file in memory, whose untouched pages are neither read nor stored.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

#define GRAIN (2ULL << 20) /* what cuMemAlloc takes from a GPU's memory is a multiple of it */
#define FILED (1ULL << 20) /* pinned memory of this size and more is a file */
#define CONTEXT_BYTES (300ULL << 20)

struct host_range *host_ranges;

static unsigned long long whole(unsigned long long size, unsigned long long grain)
{
    return (size + grain - 1) / grain * grain;
}

/* Small allocations share a grain: their sum counts. A context takes memory as well. */
static unsigned long long in_use(int gpu)
{
    const struct allocation *one;
    const struct context *context;
    unsigned long long small = 0, sum = gpus[gpu].used;
    for (one = allocations; one != NULL; one = one->next)
        if (one->context->gpu == gpu) {
            small += one->size < GRAIN ? whole(one->size, 512) : 0;
            sum += one->size < GRAIN ? 0 : whole(one->size, GRAIN);
        }
    for (context = contexts; context != NULL; context = context->next)
        sum += context->alive && context->gpu == gpu ? CONTEXT_BYTES : 0;
    return sum + whole(small, GRAIN);
}

unsigned long long available(int gpu)
{
    const unsigned long long used = in_use(gpu);
    return used < gpus[gpu].memory ? gpus[gpu].memory - used : 0;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    GUARDED;
    CUcontext context;
    TRY(enter(&context));
    if (free_bytes == NULL || total == NULL)
        return INVALID_VALUE;
    *free_bytes = available(context->gpu);
    *total = gpus[context->gpu].memory;
    return SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    GUARDED;
    CUcontext context;
    struct allocation *made;
    void *place;
    TRY(enter(&context));
    TRY(stated_error("cuMemAlloc"));
    if (out == NULL || size == 0)
        return INVALID_VALUE;
    if (size > available(context->gpu))
        return OUT_OF_MEMORY;
    const unsigned long long reserved = whole(size, PIECE);
    place = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    made = calloc(1, sizeof *made);
    if (made != NULL)
        made->pieces = calloc(reserved / PIECE, sizeof *made->pieces);
    if (place == MAP_FAILED || made == NULL || made->pieces == NULL) {
        if (place != MAP_FAILED)
            munmap(place, reserved);
        free(made);
        return OUT_OF_MEMORY;
    }
    made->base = (uintptr_t)place;
    made->size = size;
    made->reserved = reserved;
    made->context = context;
    made->next = allocations;
    allocations = made;
    *out = made->base;
    return SUCCESS;
}

static void forget(struct allocation **link)
{
    struct allocation *gone = *link;
    *link = gone->next;
    memory_forget(gone);
    munmap((void *)(uintptr_t)gone->base, gone->reserved);
    free(gone);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    GUARDED;
    CUcontext context;
    struct allocation **link;
    const CUresult result = enter(&context);
    if (result != SUCCESS || address == 0)
        return result;
    for (link = &allocations; *link != NULL && (*link)->base != address; link = &(*link)->next)
        ;
    if (*link == NULL || (*link)->shared)
        return INVALID_VALUE;
    wait_for_context((*link)->context);
    for (link = &allocations; *link != NULL && (*link)->base != address; link = &(*link)->next)
        ;
    if (*link != NULL)
        forget(link);
    return SUCCESS;
}

/* What a context takes with it when it ends. */
void storage_release(CUcontext context)
{
    struct allocation **link = &allocations;
    while (*link != NULL)
        if ((*link)->context == context && !(*link)->shared)
            forget(link);
        else
            link = &(*link)->next;
}

struct host_range *host_range_of(const void *address)
{
    struct host_range *one;
    for (one = host_ranges; one != NULL; one = one->next)
        if ((const char *)address >= one->base && (const char *)address < one->base + one->size)
            return one;
    return NULL;
}

static CUresult remember(void *base, size_t size, int file)
{
    struct host_range *made = malloc(sizeof *made);
    if (made == NULL)
        return OUT_OF_MEMORY;
    *made = (struct host_range){.next = host_ranges, .base = base, .size = size, .file = file};
    host_ranges = made;
    return SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
    GUARDED;
    CUcontext context;
    int file = -1;
    void *place;
    TRY(enter(&context));
    if (out == NULL || size == 0 || flags > 7)
        return INVALID_VALUE;
    if (size >= FILED && (file = memfd_create("pinned", MFD_CLOEXEC)) >= 0 && ftruncate(file, (off_t)size) != 0) {
        close(file);
        file = -1;
    }
    place = mmap(NULL, size, PROT_READ | PROT_WRITE, file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);
    if (place == MAP_FAILED || remember(place, size, file) != SUCCESS) {
        if (place != MAP_FAILED)
            munmap(place, size);
        if (file >= 0)
            close(file);
        return OUT_OF_MEMORY;
    }
    *out = place;
    return SUCCESS;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address, unsigned int flags)
{
    GUARDED;
    CUcontext context;
    TRY(enter(&context));
    if (out == NULL || flags != 0 || host_range_of(address) == NULL)
        return INVALID_VALUE;
    *out = (uintptr_t)address;
    return SUCCESS;
}

int owner_of(unsigned long long address, unsigned long long size)
{
    const struct allocation *allocation = allocation_of(address, size);
    const struct allocation *begin = allocation_of(address, 1);
    if (allocation != NULL)
        return allocation->context->gpu;
    /* beyond the end of an allocation, or nothing is mapped there; everything else may be the host's */
    return begin != NULL || is_reserved(address) ? NO_OWNER : HOST;
}
