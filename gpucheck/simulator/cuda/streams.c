/* Streams, and what they wait for. */
#include <stdlib.h>

#include "driver.h"

#define LEGACY ((CUstream)(uintptr_t)1)
#define PER_THREAD ((CUstream)(uintptr_t)2)

CUstream new_stream(CUcontext context, unsigned int flags)
{
    CUstream made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    made->context = context;
    made->flags = flags;
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

static CUresult enter_stream(CUstream *stream)
{
    CUcontext context;
    TRY(enter(&context));
    return check_stream(stream, context);
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
    GUARDED;
    CUcontext context;
    TRY(enter(&context));
    if (out == NULL || flags > 1)
        return INVALID_VALUE;
    *out = new_stream(context, flags);
    return *out == NULL ? OUT_OF_MEMORY : SUCCESS;
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

/* Until pinned memory holds this value or more, the only comparison that is simulated. Flag 1 << 30, to flush, changes nothing. */
EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t word, unsigned int flags)
{
    GUARDED;
    TRY(stated_error("cuStreamWaitValue32"));
    TRY(enter_stream(&stream));
    if (address % 4 != 0 || host_range_of((const void *)(uintptr_t)address) == NULL)
        return INVALID_VALUE;
    if ((flags & ~(1U << 30)) != 0)
        return NOT_SUPPORTED;
    return push(stream, &(struct operation){.kind = WAIT_VALUE, .dst = address, .value = word});
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
