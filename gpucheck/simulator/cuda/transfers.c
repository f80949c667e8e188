/* Between the host's memory and a GPU's, and whose an address is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

int owner_of(unsigned long long address, unsigned long long size)
{
    const struct allocation *allocation = allocation_of(address, size);
    const struct allocation *begin = allocation_of(address, 1);
    if (allocation != NULL)
        return allocation->context->gpu;
    return begin != NULL ? NOBODY : HOST; /* beyond the end of an allocation; everything else may be the host's */
}

/* How many bytes from `at` on were never written, if any were not: pages that the file does not have. */
static unsigned long long untouched(const struct host_range *range, unsigned long long at)
{
    const off_t data = lseek(range->file, (off_t)at, SEEK_DATA);
    if (data < 0)
        return range->size - at;
    return (unsigned long long)data - at;
}

static unsigned long long touched(const struct host_range *range, unsigned long long at)
{
    const off_t hole = lseek(range->file, (off_t)at, SEEK_HOLE);
    return hole < 0 ? range->size - at : (unsigned long long)hole - at;
}

static struct host_range *file_range(const char *address, unsigned long long size)
{
    struct host_range *range = host_range_of(address);
    if (range == NULL || range->file < 0 || size > range->size - (unsigned long long)(address - range->base))
        return NULL;
    return range;
}

void host_to_device(unsigned long long to, const char *from, unsigned long long size)
{
    const struct host_range *range = file_range(from, size);
    if (range == NULL) {
        memory_write(to, from, size);
        return;
    }
    while (size > 0) {
        const unsigned long long at = (unsigned long long)(from - range->base);
        unsigned long long part = untouched(range, at);
        const bool empty = part > 0;
        if (!empty)
            part = touched(range, at);
        if (part == 0 || part > size)
            part = size;
        if (empty)
            memory_fill(to, 0, part);
        else
            memory_write(to, from, part);
        to += part;
        from += part;
        size -= part;
    }
}

/* Zeros of a GPU become untouched pages again. */
static bool punched(const struct host_range *range, const char *to, unsigned long long size)
{
    return fallocate(range->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(to - range->base), (off_t)size) == 0;
}

void device_to_host(char *to, unsigned long long from, unsigned long long size)
{
    const struct host_range *range = file_range(to, size);
    while (size > 0) {
        unsigned long long part = size < (64ULL << 20) ? size : 64ULL << 20;
        while (part > PIECE && !memory_is_zero(from, part))
            part = part / 2 < PIECE ? PIECE : part / 2;
        if (range == NULL || !memory_is_zero(from, part) || !punched(range, to, part))
            memory_read(from, to, part);
        to += part;
        from += part;
        size -= part;
    }
}

static CUresult pointer_attribute(void *out, int attribute, CUdeviceptr address)
{
    const struct allocation *allocation = allocation_of(address, 1);
    const struct host_range *range = host_range_of((const void *)(uintptr_t)address);
    if (allocation == NULL && range == NULL)
        return INVALID_VALUE;
    switch (attribute) {
    case 1: /* CONTEXT */
        *(CUcontext *)out = allocation != NULL ? allocation->context : NULL;
        return SUCCESS;
    case 2: /* MEMORY_TYPE: 1 the host's, 2 a device's */
        *(unsigned int *)out = allocation != NULL ? 2 : 1;
        return SUCCESS;
    case 3: /* DEVICE_POINTER */
        *(CUdeviceptr *)out = address;
        return SUCCESS;
    case 4: /* HOST_POINTER */
        *(void **)out = (void *)(uintptr_t)address;
        return allocation != NULL ? INVALID_VALUE : SUCCESS;
    case 8: /* IS_MANAGED */
        *(unsigned int *)out = 0;
        return SUCCESS;
    case 9: /* DEVICE_ORDINAL */
        *(int *)out = allocation != NULL ? allocation->context->gpu : -2;
        return SUCCESS;
    case 11: /* RANGE_START_ADDR */
        *(unsigned long long *)out = allocation != NULL ? allocation->base : (uintptr_t)range->base;
        return SUCCESS;
    case 12: /* RANGE_SIZE */
        *(size_t *)out = allocation != NULL ? allocation->size : range->size;
        return SUCCESS;
    default:
        return NOT_SUPPORTED;
    }
}

EXPORT CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address)
{
    GUARDED;
    if (initialized() != SUCCESS)
        return NOT_INITIALIZED;
    return out == NULL ? INVALID_VALUE : pointer_attribute(out, attribute, address);
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    GUARDED;
    CUcontext context;
    const struct allocation *allocation = allocation_of(address, 1);
    const CUresult result = enter(&context);
    if (result != SUCCESS)
        return result;
    if (allocation == NULL)
        return NOT_FOUND;
    if (base != NULL)
        *base = allocation->base;
    if (size != NULL)
        *size = allocation->size;
    return SUCCESS;
}
