/* Whose an address is. */
#include <stdlib.h>

#include "driver.h"

int owner_of(unsigned long long address, unsigned long long size)
{
    const struct allocation *allocation = allocation_of(address, size);
    const struct allocation *begin = allocation_of(address, 1);
    if (allocation != NULL)
        return allocation->context->gpu;
    /* beyond the end of an allocation, or nothing is mapped there; everything else may be the host's */
    return begin != NULL || is_reserved(address) ? NO_OWNER : HOST;
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
    TRY(enter(&context));
    if (allocation == NULL)
        return NOT_FOUND;
    if (base != NULL)
        *base = allocation->base;
    if (size != NULL)
        *size = allocation->size;
    return SUCCESS;
}
