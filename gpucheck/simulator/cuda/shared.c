/*
 * Memory that is made, shared and mapped in steps: cuMemCreate, a fabric handle, an address range, access by GPU. Only
 * what a fabric handle needs: one mapping of a memory at a time, whole and from its beginning.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver.h"

#define GRAIN (2ULL << 20)
#define CHANNEL "nvidia-caps-imex-channels/channel0"
enum { PINNED = 1, DEVICE = 1, FABRIC = 8, READ_WRITE = 3 }; /* of CUmemAllocationType, -LocationType, -HandleType, -Access */

struct location { int type, id; };
struct properties { int type, handle_types; struct location location; void *win32; unsigned char flags[8]; };
struct access { struct location location; int flags; };
struct physical { struct physical *next; unsigned long long size; unsigned int holders; struct allocation memory; };
struct range { struct range *next; unsigned long long base, size; struct physical *mapped; };

static struct physical *memories;
static struct range *ranges;

static struct physical **memory_link(unsigned long long handle)
{
    struct physical **link = &memories;
    while (*link != NULL && (uintptr_t)*link != handle)
        link = &(*link)->next;
    return link;
}

static struct range **range_link(CUdeviceptr base, size_t size)
{
    struct range **link = &ranges;
    while (*link != NULL && ((*link)->base != base || (*link)->size != size))
        link = &(*link)->next;
    return link;
}

bool is_reserved(unsigned long long address)
{
    const struct range *one = ranges;
    while (one != NULL && (address < one->base || address - one->base >= one->size))
        one = one->next;
    return one != NULL;
}

static void let_go(struct physical **link)
{
    struct physical *gone = *link;
    if (--gone->holders > 0)
        return;
    *link = gone->next;
    memory_forget(&gone->memory);
    free(gone);
}

static CUcontext context_of(int gpu)
{
    CUcontext one = contexts;
    while (one != NULL && !(one->alive && one->gpu == gpu))
        one = one->next;
    return one;
}

static CUresult check_properties(const struct properties *wanted)
{
    if (wanted == NULL || wanted->type != PINNED || wanted->location.type != DEVICE || wanted->handle_types & ~FABRIC)
        return INVALID_VALUE;
    return check_device(wanted->location.id);
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *out, const struct properties *wanted, int option)
{
    GUARDED;
    TRY(initialized());
    TRY(check_properties(wanted));
    if (out == NULL || option < 0 || option > 1)
        return INVALID_VALUE;
    *out = GRAIN;
    return SUCCESS;
}

/* A fabric handle needs a GPU in a domain of several hosts, and an IMEX channel that the process may open. */
EXPORT CUresult cuMemCreate(unsigned long long *out, size_t size, const struct properties *wanted, unsigned long long flags)
{
    GUARDED;
    struct physical *made;
    TRY(initialized());
    TRY(stated_error("cuMemCreate"));
    TRY(check_properties(wanted));
    CUcontext context = context_of(wanted->location.id);
    if (out == NULL || size == 0 || size % GRAIN != 0 || flags != 0)
        return INVALID_VALUE;
    if (wanted->handle_types == FABRIC && !offers_fabric_handles(gpus[wanted->location.id].number))
        return NOT_SUPPORTED;
    if (wanted->handle_types == FABRIC && machine_lacks(CHANNEL))
        return NOT_PERMITTED;
    if (context == NULL)
        return INVALID_CONTEXT;
    if (size > available(wanted->location.id) || (made = calloc(1, sizeof *made)) == NULL)
        return OUT_OF_MEMORY;
    if ((made->memory.pieces = calloc(size / PIECE, sizeof *made->memory.pieces)) == NULL) {
        free(made);
        return OUT_OF_MEMORY;
    }
    made->memory.size = made->size = size;
    made->memory.context = context;
    made->memory.shared = true;
    made->holders = 1;
    made->next = memories;
    memories = made;
    *out = (uintptr_t)made;
    return SUCCESS;
}

EXPORT CUresult cuMemRelease(unsigned long long handle)
{
    GUARDED;
    struct physical **link = memory_link(handle);
    TRY(initialized());
    if (*link == NULL)
        return INVALID_VALUE;
    let_go(link);
    return SUCCESS;
}

EXPORT CUresult cuMemExportToShareableHandle(void *out, unsigned long long handle, int type, unsigned long long flags)
{
    GUARDED;
    TRY(initialized());
    TRY(stated_error("cuMemExportToShareableHandle"));
    if (out == NULL || type != FABRIC || flags != 0 || *memory_link(handle) == NULL)
        return INVALID_VALUE;
    memset(out, 0, 64);
    memcpy(out, &handle, sizeof handle);
    return SUCCESS;
}

EXPORT CUresult cuMemImportFromShareableHandle(unsigned long long *out, void *shared, int type)
{
    GUARDED;
    struct physical *found;
    unsigned long long handle;
    TRY(initialized());
    TRY(stated_error("cuMemImportFromShareableHandle"));
    if (out == NULL || shared == NULL || type != FABRIC)
        return INVALID_VALUE;
    memcpy(&handle, shared, sizeof handle);
    if ((found = *memory_link(handle)) == NULL)
        return INVALID_VALUE;
    found->holders++;
    *out = handle;
    return SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wanted, unsigned long long flags)
{
    GUARDED;
    struct range *made;
    void *place;
    TRY(initialized());
    (void)wanted; /* a hint */
    if (out == NULL || size == 0 || size % GRAIN != 0 || (alignment & (alignment - 1)) != 0 || flags != 0)
        return INVALID_VALUE;
    place = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED || (made = calloc(1, sizeof *made)) == NULL)
        return OUT_OF_MEMORY;
    *made = (struct range){ranges, (uintptr_t)place, size, NULL};
    ranges = made;
    *out = made->base;
    return SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr base, size_t size)
{
    GUARDED;
    struct range **link = range_link(base, size), *gone = *link;
    TRY(initialized());
    if (gone == NULL || gone->mapped != NULL)
        return INVALID_VALUE;
    *link = gone->next;
    munmap((void *)(uintptr_t)base, size);
    free(gone);
    return SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset, unsigned long long handle, unsigned long long flags)
{
    GUARDED;
    struct physical *memory = *memory_link(handle);
    struct range *range = *range_link(base, size);
    TRY(initialized());
    if (memory == NULL || range == NULL || range->mapped != NULL || size != memory->size || offset != 0 || flags != 0)
        return INVALID_VALUE;
    if (memory->memory.base != 0)
        return NOT_SUPPORTED; /* a second mapping is not simulated */
    memory->memory.base = base;
    memory->memory.next = allocations;
    allocations = &memory->memory;
    memory->holders++;
    range->mapped = memory;
    return SUCCESS;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr base, size_t size)
{
    GUARDED;
    struct range *range = *range_link(base, size);
    struct allocation **link = &allocations;
    CUcontext one;
    TRY(initialized());
    if (range == NULL || range->mapped == NULL)
        return INVALID_VALUE;
    for (one = contexts; one != NULL; one = one->next)
        if (one->alive)
            wait_for_context(one);
    while (*link != &range->mapped->memory)
        link = &(*link)->next;
    *link = (*link)->next;
    range->mapped->memory.base = 0;
    memset(range->mapped->memory.reach, 0, sizeof range->mapped->memory.reach);
    let_go(memory_link((uintptr_t)range->mapped));
    range->mapped = NULL;
    return SUCCESS;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr base, size_t size, const struct access *wanted, size_t count)
{
    GUARDED;
    struct range *range = *range_link(base, size);
    size_t place;
    TRY(initialized());
    if (range == NULL || range->mapped == NULL || wanted == NULL)
        return INVALID_VALUE;
    for (place = 0; place < count; place++) {
        if (wanted[place].location.type != DEVICE)
            return INVALID_VALUE;
        TRY(check_device(wanted[place].location.id));
        range->mapped->memory.reach[wanted[place].location.id] = wanted[place].flags == READ_WRITE;
    }
    return SUCCESS;
}
