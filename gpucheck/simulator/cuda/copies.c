/* cuMemcpy* and cuMemset*: checked and queued. */
#include "driver.h"

/* Memory of cuMemCreate: cuMemSetAccess decides which GPUs reach it, whatever the peer access is. */
static bool shared(CUdeviceptr address)
{
    const struct allocation *allocation = allocation_of(address, 1);
    return allocation != NULL && allocation->shared;
}

static bool reaches(int gpu, CUdeviceptr address)
{
    return !shared(address) || allocation_of(address, 1)->reach[gpu];
}

/* The context's copy of `size` bytes. Without peer access between the two GPUs it leads through host memory. */
static CUresult copy(CUcontext context, CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream, bool blocking)
{
    struct operation made = {.kind = COPY, .dst = dst, .src = src, .size = size, .count = 1};
    const struct pair *pair;
    CUresult result = check_stream(&stream, context);
    if (result != SUCCESS)
        return result;
    if (size == 0)
        return blocking ? wait_for_stream(stream) : SUCCESS;
    made.to = owner_of(dst, size);
    made.from = owner_of(src, size);
    if (made.to == NO_OWNER || made.from == NO_OWNER)
        return INVALID_VALUE;
    if (!reaches(stream->context->gpu, dst) || !reaches(stream->context->gpu, src))
        return INVALID_VALUE;
    pair = pair_of(made.from, made.to);
    made.direct = pair == NULL || shared(dst) || shared(src) ||
                  (stream->context->gpu == made.from && may_access(stream->context, made.to)) ||
                  (stream->context->gpu == made.to && may_access(stream->context, made.from));
    if (pair != NULL && made.direct) {
        if (stream->head == NULL) /* a row of copies reads the machine once: its files are searched each time */
            machine_refresh();
        if (pair->error != SUCCESS && !is_sticky(pair->error))
            return pair->error;
    }
    if (pair != NULL && !made.direct && staged_copies_block)
        result = wait_for_stream(stream);
    if (result == SUCCESS)
        result = push(stream, &made);
    if (result == SUCCESS && blocking)
        result = wait_for_stream(stream);
    return result;
}

/* Copies of any two places. `to`, `from`: GPU or HOST where the caller stated whose memory it is, else `NO_OWNER`. */
static CUresult ask(CUdeviceptr dst, int to, CUdeviceptr src, int from, size_t size, CUstream stream, bool blocking)
{
    CUcontext context;
    TRY(enter(&context));
    if (size > 0 && (dst == 0 || src == 0))
        return INVALID_VALUE;
    if (size > 0 && to == HOST && owner_of(dst, 1) != HOST)
        return INVALID_VALUE;
    if (size > 0 && from == HOST && owner_of(src, 1) != HOST)
        return INVALID_VALUE;
    if (size > 0 && ((to >= 0 && owner_of(dst, 1) < 0) || (from >= 0 && owner_of(src, 1) < 0)))
        return INVALID_VALUE;
    return copy(context, dst, src, size, stream, blocking);
}

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t size)
{
    GUARDED;
    return ask(dst, 0, ADDRESS(src), HOST, size, NULL, true);
}

/* From memory that is not pinned the call returns when the data is on its way: here, when it has arrived. */
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t size, CUstream stream)
{
    GUARDED;
    return ask(dst, 0, ADDRESS(src), HOST, size, stream, host_range_of(src) == NULL);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t size)
{
    GUARDED;
    return ask(ADDRESS(dst), HOST, src, 0, size, NULL, true);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t size, CUstream stream)
{
    GUARDED;
    return ask(ADDRESS(dst), HOST, src, 0, size, stream, host_range_of(dst) == NULL);
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t size)
{
    GUARDED;
    return ask(dst, 0, src, 0, size, NULL, true);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
    GUARDED;
    return ask(dst, 0, src, 0, size, stream, false);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
    GUARDED;
    return ask(dst, NO_OWNER, src, NO_OWNER, size, stream, false);
}

/* Each address has to be of the GPU whose context is named with it. */
EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size, CUstream stream)
{
    GUARDED;
    CUresult result = check_context(to);
    if (result == SUCCESS)
        result = check_context(from);
    if (result != SUCCESS)
        return initialized() == SUCCESS ? result : NOT_INITIALIZED;
    if (size > 0 && (owner_of(dst, size) != to->gpu || owner_of(src, size) != from->gpu))
        return INVALID_VALUE;
    return ask(dst, to->gpu, src, from->gpu, size, stream, false);
}

/* `count` values of four bytes, of which there is an even number. */
EXPORT CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream)
{
    GUARDED;
    struct operation made = {.kind = KERNEL, .kernel = K_POISON, .arguments = {dst, value | (unsigned long long)value << 32, count / 2}};
    CUcontext context;
    TRY(enter(&context));
    TRY(check_stream(&stream, context));
    if (count % 2 != 0)
        return NOT_SUPPORTED;
    TRY(prepare_kernel(&made, context));
    return made.illegal ? INVALID_VALUE : push(stream, &made);
}
