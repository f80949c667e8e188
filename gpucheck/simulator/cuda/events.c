/* Events: points of a stream, with the simulated time at which it came there. */
#include <stdlib.h>

#include "driver.h"

#define DISABLE_TIMING 2

static CUevent events;

CUresult check_event(CUevent event)
{
    CUevent one;
    for (one = events; one != NULL && one != event; one = one->next)
        ;
    return one == NULL || one->destroyed ? INVALID_HANDLE : SUCCESS;
}

/* One operation fewer names it; freed when none does and the caller has destroyed it. */
void release_event(CUevent event)
{
    CUevent *link;
    event->uses--;
    if (event->uses > 0 || !event->destroyed)
        return;
    for (link = &events; *link != event; link = &(*link)->next)
        ;
    *link = event->next;
    free(event);
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    GUARDED;
    CUcontext context;
    CUevent made;
    const CUresult result = enter(&context);
    if (result != SUCCESS || out == NULL || flags > 7)
        return result != SUCCESS ? result : INVALID_VALUE;
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
    const CUresult result = enter(&context);
    if (result != SUCCESS || check_event(event) != SUCCESS)
        return result != SUCCESS ? result : INVALID_HANDLE;
    return event->context->alive ? event->context->sticky : CONTEXT_IS_DESTROYED;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    GUARDED;
    if (initialized() != SUCCESS)
        return NOT_INITIALIZED;
    if (check_event(event) != SUCCESS)
        return INVALID_HANDLE;
    event->uses++;
    event->destroyed = true;
    release_event(event);
    return SUCCESS;
}

/* Event and stream have to be of one context. */
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    GUARDED;
    CUcontext context;
    CUresult result = enter(&context);
    if (result == SUCCESS)
        result = check_stream(&stream, context);
    if (result == SUCCESS)
        result = enter_event(event);
    if (result != SUCCESS)
        return result;
    if (event->context != stream->context)
        return INVALID_HANDLE;
    event->wanted++;
    return push(stream, &(struct operation){.kind = RECORD, .event = event, .generation = event->wanted});
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    return flags == 0 ? cuEventRecord(event, stream) : NOT_SUPPORTED;
}

EXPORT CUresult cuEventQuery(CUevent event)
{
    GUARDED;
    const CUresult result = enter_event(event);
    if (result != SUCCESS)
        return result;
    advance();
    if (event->context->sticky != SUCCESS)
        return event->context->sticky;
    return event->done >= event->wanted ? SUCCESS : NOT_READY;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    GUARDED;
    const CUresult result = enter_event(event);
    return result == SUCCESS ? wait_for_event(event, event->wanted) : result;
}

/* Milliseconds of simulated time between two events of one GPU. */
EXPORT CUresult cuEventElapsedTime(float *out, CUevent start, CUevent end)
{
    GUARDED;
    CUresult result = enter_event(start);
    if (result == SUCCESS)
        result = enter_event(end);
    if (result != SUCCESS || out == NULL)
        return result != SUCCESS ? result : INVALID_VALUE;
    if (start->context != end->context || ((start->flags | end->flags) & DISABLE_TIMING))
        return INVALID_HANDLE;
    if (start->wanted == 0 || end->wanted == 0)
        return INVALID_HANDLE;
    advance();
    if (start->done < start->wanted || end->done < end->wanted)
        return start->context->sticky != SUCCESS ? start->context->sticky : NOT_READY;
    *out = (float)((end->at - start->at) * 1e3);
    return SUCCESS;
}

EXPORT CUresult cuEventElapsedTime_v2(float *out, CUevent start, CUevent end)
{
    return cuEventElapsedTime(out, start, end);
}
