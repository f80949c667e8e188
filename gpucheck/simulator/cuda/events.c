/* Events: points of a stream, with the simulated time at which it came there. */
#include <math.h>
#include <stdlib.h>

#include "driver.h"

#define DISABLE_TIMING 2
#define RESOLUTION_S 0.5e-6 /* "a resolution of around 0.5 microseconds": cuEventElapsedTime in NVIDIA's CUDA Driver API */

static CUevent events;

CUresult check_event(CUevent event)
{
    CUevent one;
    for (one = events; one != NULL && one != event; one = one->next)
        ;
    return one == NULL ? INVALID_HANDLE : SUCCESS;
}

void mark_drop(struct mark *mark)
{
    if (mark != NULL && --mark->holders == 0)
        free(mark);
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    GUARDED;
    CUcontext context;
    CUevent made;
    TRY(enter(&context));
    if (out == NULL || flags > 7)
        return INVALID_VALUE;
    if ((made = calloc(1, sizeof *made)) == NULL)
        return OUT_OF_MEMORY;
    made->context = context;
    made->flags = flags;
    made->next = events;
    events = made;
    *out = made;
    return SUCCESS;
}

static CUresult enter_event(CUevent event)
{
    CUcontext context;
    TRY(enter(&context));
    if (check_event(event) != SUCCESS)
        return INVALID_HANDLE;
    return event->context->alive ? event->context->sticky : CONTEXT_IS_DESTROYED;
}

/* What waits for it still does. */
EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    GUARDED;
    CUevent *link;
    if (initialized() != SUCCESS)
        return NOT_INITIALIZED;
    if (check_event(event) != SUCCESS)
        return INVALID_HANDLE;
    for (link = &events; *link != event; link = &(*link)->next)
        ;
    *link = event->next;
    mark_drop(event->mark);
    free(event);
    return SUCCESS;
}

/* Event and stream have to be of one context. */
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    GUARDED;
    CUcontext context;
    struct mark *mark;
    CUresult result = enter(&context);
    if (result == SUCCESS)
        result = check_stream(&stream, context);
    if (result == SUCCESS)
        result = enter_event(event);
    if (result != SUCCESS)
        return result;
    if (event->context != stream->context)
        return INVALID_HANDLE;
    if ((mark = calloc(1, sizeof *mark)) == NULL)
        return OUT_OF_MEMORY;
    mark->holders = 1;
    result = push(stream, &(struct operation){.kind = RECORD, .mark = mark});
    mark_drop(result == SUCCESS ? event->mark : mark);
    if (result == SUCCESS)
        event->mark = mark;
    return result;
}

EXPORT CUresult cuEventQuery(CUevent event)
{
    GUARDED;
    TRY(enter_event(event));
    advance();
    if (event->context->sticky != SUCCESS)
        return event->context->sticky;
    return event->mark == NULL || event->mark->done ? SUCCESS : NOT_READY;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    GUARDED;
    const CUresult result = enter_event(event);
    return result == SUCCESS && event->mark != NULL ? wait_for_mark(event->mark, event->context) : result;
}

/* Milliseconds of simulated time between two events of one GPU, in steps as real ones have them. */
EXPORT CUresult cuEventElapsedTime(float *out, CUevent start, CUevent end)
{
    GUARDED;
    TRY(enter_event(start));
    TRY(enter_event(end));
    if (out == NULL)
        return INVALID_VALUE;
    if (start->context != end->context || ((start->flags | end->flags) & DISABLE_TIMING))
        return INVALID_HANDLE;
    if (start->mark == NULL || end->mark == NULL)
        return INVALID_HANDLE;
    advance();
    if (!start->mark->done || !end->mark->done)
        return start->context->sticky != SUCCESS ? start->context->sticky : NOT_READY;
    *out = (float)((floor(end->mark->at / RESOLUTION_S) - floor(start->mark->at / RESOLUTION_S)) * RESOLUTION_S * 1e3);
    return SUCCESS;
}

EXPORT CUresult cuEventElapsedTime_v2(float *out, CUevent start, CUevent end)
{
    return cuEventElapsedTime(out, start, end);
}
