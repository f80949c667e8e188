/* Queues: an operation at the end of a stream, and waiting until what is queued is done. */
#include <stdlib.h>

#include "driver.h"

static unsigned long long numbers;

/* Copies of the same in a row are one entry that is done so many times: their data moves once. */
static bool joined(CUstream stream, const struct operation *operation)
{
    struct operation *last = stream->tail;
    if (last == NULL || last->started || last->kind != COPY || operation->kind != COPY || last->dst != operation->dst ||
        last->src != operation->src || last->size != operation->size || last->direct != operation->direct)
        return false;
    last->count++;
    stream->length++;
    return true;
}

/* As with a real driver the call does not return while the queue is full. */
static void wait_for_room(CUstream stream)
{
    unsigned int tries;
    if (stream->length >= queue_length)
        advance();
    for (tries = 0; stream->length >= queue_length && stream->context->sticky == SUCCESS; tries++) {
        let_others(tries);
        advance();
    }
}

CUresult push(CUstream stream, const struct operation *operation)
{
    struct operation *made;
    wait_for_room(stream);
    if (stream->context->sticky != SUCCESS)
        return stream->context->sticky;
    if (joined(stream, operation))
        return SUCCESS;
    if ((made = malloc(sizeof *made)) == NULL)
        return OUT_OF_MEMORY;
    *made = *operation;
    made->number = ++numbers;
    made->count = 1;
    made->next = NULL;
    if (made->mark != NULL)
        made->mark->holders++;
    if (stream->tail != NULL)
        stream->tail->next = made;
    else
        stream->head = made;
    stream->tail = made;
    stream->length++;
    return SUCCESS;
}

/* What is queued after the call is not waited for. */
static bool done_until(const struct stream *stream, unsigned long long number)
{
    return stream->head == NULL || stream->head->number > number;
}

CUresult wait_for_stream(CUstream stream)
{
    CUcontext context = stream->context;
    const unsigned long long last = numbers;
    unsigned int tries;
    advance();
    for (tries = 0; context->alive && context->sticky == SUCCESS && !done_until(stream, last); tries++) {
        let_others(tries);
        advance();
    }
    return context->sticky;
}

static bool all_done(CUcontext context, unsigned long long number)
{
    CUstream stream;
    for (stream = streams; stream != NULL; stream = stream->next)
        if (stream->context == context && !done_until(stream, number))
            return false;
    return true;
}

CUresult wait_for_context(CUcontext context)
{
    const unsigned long long last = numbers;
    unsigned int tries;
    advance();
    for (tries = 0; context->alive && context->sticky == SUCCESS && !all_done(context, last); tries++) {
        let_others(tries);
        advance();
    }
    return context->sticky;
}

CUresult wait_for_mark(struct mark *mark, CUcontext context)
{
    unsigned int tries;
    mark->holders++;
    advance();
    for (tries = 0; context->alive && context->sticky == SUCCESS && !mark->done; tries++) {
        let_others(tries);
        advance();
    }
    mark_drop(mark);
    return context->sticky;
}
