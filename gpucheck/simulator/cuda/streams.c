/* Streams, and what they wait for. */
#include <stdlib.h>

#include "driver.h"

#define LEGACY ((CUstream)(uintptr_t)1)
#define PER_THREAD ((CUstream)(uintptr_t)2)

CUstream new_stream(CUcontext context, unsigned int flags, int priority)
{
    CUstream made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    made->context = context;
    made->flags = flags;
    made->priority = priority;
    made->next = streams;
    streams = made;
    return made;
}

/* A stream by its handle; of the context's own, 0 and 1 name the legacy one, as does 2: there is one for all threads. */
CUresult check_stream(CUstream *stream, CUcontext context)
{
    CUstream one;
    if (*stream == NULL || *stream == LEGACY || *stream == PER_THREAD) {
        *stream = context->legacy;
        return SUCCESS;
    }
    for (one = streams; one != NULL && one != *stream; one = one->next)
        ;
    if (one == NULL || one->closed)
        return INVALID_HANDLE;
    return one->context->alive ? one->context->sticky : CONTEXT_IS_DESTROYED;
}

#define GREATEST_PRIORITY (-5) /* of every GPU since sm_60; 0 is the least */

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    GUARDED;
    CUcontext context;
    TRY(enter(&context));
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = GREATEST_PRIORITY;
    return SUCCESS;
}

static CUresult enter_stream(CUstream *stream)
{
    CUcontext context;
    TRY(enter(&context));
    return check_stream(stream, context);
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    GUARDED;
    CUcontext context;
    TRY(enter(&context));
    if (out == NULL || flags > 1)
        return INVALID_VALUE;
    *out = new_stream(context, flags, priority > 0 ? 0 : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority);
    return *out == NULL ? OUT_OF_MEMORY : SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
    return cuStreamCreateWithPriority(out, flags, 0);
}

/* What is queued is still done. */
EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    GUARDED;
    TRY(enter_stream(&stream));
    if (stream == stream->context->legacy)
        return INVALID_HANDLE;
    stream->closed = true;
    advance();
    return SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    GUARDED;
    TRY(enter_stream(&stream));
    return wait_for_stream(stream);
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
    GUARDED;
    CUcontext context;
    TRY(enter_stream(&stream));
    context = stream->context;
    advance();
    return context->sticky != SUCCESS ? context->sticky : stream->head == NULL ? SUCCESS : NOT_READY;
}

#define PROPERTY(function, type, name)                                                                                 \
    EXPORT CUresult function(CUstream stream, type *out)                                                               \
    {                                                                                                                  \
        GUARDED;                                                                                                       \
        TRY(enter_stream(&stream));                                                                                    \
        if (out == NULL)                                                                                               \
            return INVALID_VALUE;                                                                                      \
        *out = stream->name;                                                                                           \
        return SUCCESS;                                                                                                \
    }
PROPERTY(cuStreamGetFlags, unsigned int, flags)
PROPERTY(cuStreamGetPriority, int, priority)
PROPERTY(cuStreamGetCtx, CUcontext, context)

/* `flags`: how to compare (0 to 3), and 1 << 30 to flush, which changes nothing here. */
static CUresult value(CUstream stream, enum kind kind, CUdeviceptr address, unsigned long long word, bool wide, unsigned int flags)
{
    const struct operation made = {
        .kind = kind, .dst = address, .value = word, .wide = wide, .flags = flags & 3, .to = owner_of(address, wide ? 8 : 4)};
    TRY(enter_stream(&stream));
    if (address == 0 || address % (wide ? 8 : 4) != 0 || (flags & ~(3U | 1U << 30)) != 0 || made.to == NO_OWNER)
        return INVALID_VALUE;
    if (made.to == HOST && host_range_of((const void *)(uintptr_t)address) == NULL)
        return INVALID_VALUE; /* memory that the GPU does not see */
    if (!may_access(stream->context, made.to))
        return INVALID_VALUE;
    return push(stream, &made);
}

/* The first form, of CUDA 8: off unless the kernel module was loaded with NVreg_EnableStreamMemOPs=1 (cuda.h). */
EXPORT CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, uint32_t word, unsigned int flags)
{
    GUARDED;
    (void)address;
    (void)word;
    (void)flags;
    TRY(enter_stream(&stream));
    return NOT_SUPPORTED;
}

EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t word, unsigned int flags)
{
    GUARDED;
    TRY(stated_error("cuStreamWaitValue32"));
    return value(stream, WAIT_VALUE, address, word, false, flags);
}

EXPORT CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, uint64_t word, unsigned int flags)
{
    GUARDED;
    return value(stream, WAIT_VALUE, address, word, true, flags);
}

EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t word, unsigned int flags)
{
    GUARDED;
    return flags > 1 ? INVALID_VALUE : value(stream, WRITE_VALUE, address, word, false, 0);
}

EXPORT CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t word, unsigned int flags)
{
    GUARDED;
    return flags > 1 ? INVALID_VALUE : value(stream, WRITE_VALUE, address, word, true, 0);
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    GUARDED;
    TRY(enter_stream(&stream));
    TRY(check_event(event));
    if (flags > 1)
        return INVALID_VALUE;
    if (event->mark == NULL)
        return SUCCESS; /* never recorded: nothing to wait for */
    return push(stream, &(struct operation){.kind = WAIT_EVENT, .mark = event->mark});
}
