/*
 * Simulated time. `advance` does everything that waits for nothing: it starts what stands at the head of a queue, moves the
 * clock to the next end, and puts the data where it belongs. Concurrent copies share the links that they have in
 * common: each runs at its rate divided by how many use its busiest link.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define MOST_LINKS 8192
#define LEAST_FACTOR 0.05
#define ENOUGH 1e-9 /* a part this small is done: sums of fractions are not exact */

double now;
CUstream streams;
static unsigned long long random_state;

bool is_sticky(CUresult code)
{
    switch ((int)code) {
    case ECC_UNCORRECTABLE:
    case NVLINK_UNCORRECTABLE:
    case UNKNOWN:
        return true;
    default:
        return code == ILLEGAL_ADDRESS || code == 702 || code == 710 || (code >= 714 && code <= LAUNCH_FAILED);
    }
}

/* The same seed gives the same times in each process that makes the same calls. */
void seed_noise(unsigned long long seed)
{
    random_state = mix(seed + STRIDE) | 1;
}

static double random_part(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return ((double)(random_state >> 11) + 0.5) / 9007199254740992.0;
}

/* Noise of a copy (standard deviation `noise`), and the drift of a machine that becomes slower. */
static double factor(void)
{
    double part = 1;
    if (noise > 0)
        part += noise * sqrt(-2 * log(random_part())) * cos(2 * 3.14159265358979323846 * random_part());
    return (part < LEAST_FACTOR ? LEAST_FACTOR : part) * (1 + drift * now / 10);
}

static void finish(CUstream stream)
{
    struct operation *done = stream->head;
    stream->head = done->next;
    if (stream->head == NULL)
        stream->tail = NULL;
    stream->length -= done->count;
    mark_drop(done->mark);
    free(done);
}

/* A sticky error: nothing that was queued in the context is done. */
static void fail(CUcontext context, CUresult code)
{
    if (context->sticky == SUCCESS)
        context->sticky = code;
    drop_work(context);
}

void drop_work(CUcontext context)
{
    CUstream stream;
    for (stream = streams; stream != NULL; stream = stream->next)
        while (stream->context == context && stream->head != NULL) {
            if (stream->head->kind == RECORD)
                stream->head->mark->done = true;
            finish(stream);
        }
}

/* Greater or equal, cyclic. */
static bool satisfied(const struct operation *operation)
{
    const unsigned int held = __atomic_load_n((const unsigned int *)(uintptr_t)operation->dst, __ATOMIC_ACQUIRE);
    return (int)(held - (unsigned int)operation->value) >= 0;
}

/* The legacy stream and every stream without NON_BLOCKING wait for what was queued in the other before. */
static bool held_back(const struct stream *stream)
{
    const struct stream *other;
    const bool legacy = stream == stream->context->legacy;
    if (!legacy && (stream->flags & 1))
        return false;
    for (other = streams; other != NULL; other = other->next)
        if (other->context == stream->context && other != stream && other->head != NULL &&
            other->head->number < stream->head->number &&
            (legacy ? !(other->flags & 1) : other == stream->context->legacy))
            return true;
    return false;
}

/* Starts the operation at the head; true where something happened. */
static bool begin(CUstream stream)
{
    struct operation *head = stream->head;
    if (head->started || held_back(stream))
        return false;
    switch (head->kind) {
    case RECORD:
        head->mark->done = true;
        head->mark->at = now;
        break;
    case WAIT_EVENT:
        if (!head->mark->done)
            return false;
        break;
    case WAIT_VALUE:
        if (!satisfied(head))
            return false;
        break;
    default:
        head->started = true;
        head->left = 1;
        head->factor = factor();
        if (head->kind == COPY || (head->kind == KERNEL && head->kernel == K_COPY && !head->illegal))
            head->route = route_of(head);
        if (head->route.pair != NULL && head->route.pair->error != SUCCESS)
            fail(stream->context, head->route.pair->error);
        return true;
    }
    finish(stream);
    return true;
}

static void start_all(void)
{
    CUstream stream;
    bool again = true;
    while (again) {
        again = false;
        for (stream = streams; stream != NULL; stream = stream->next)
            while (stream->head != NULL && begin(stream))
                again = true;
    }
}

static bool runs(const struct stream *stream)
{
    return stream->head != NULL && stream->head->started && !(stream->head->route.pair != NULL && stream->head->route.pair->stuck);
}

/* Seconds that the whole operation takes where `crowd` has the number of users of each link. */
static double seconds(const struct stream *stream, const unsigned short *crowd)
{
    const struct operation *operation = stream->head;
    const struct route *route = &operation->route;
    unsigned int share = 1;
    double one, rate = route->bytes_s;
    int place;
    if (operation->kind == KERNEL && (operation->kernel != K_COPY || operation->illegal))
        return kernel_seconds(operation, stream->context->gpu) * operation->factor;
    for (place = 0; place < route->link_count; place++)
        if (crowd[route->links[place]] > share)
            share = crowd[route->links[place]];
    for (place = 0; place < route->opposite_count; place++)
        if (crowd[route->opposite[place]] > 0) {
            rate *= route->duplex;
            break;
        }
    one = route->setup_s + (double)operation->size * share / rate;
    return operation->count * (one > route->latency_s ? one : route->latency_s) * operation->factor;
}

static void complete(CUstream stream)
{
    struct operation *head = stream->head;
    if (head->kind == COPY) {
        arrive(head);
    } else if (!run_kernel(head, stream->context)) {
        fail(stream->context, ILLEGAL_ADDRESS); /* which empties the queue */
        return;
    }
    finish(stream);
}

/* Moves the clock to the next end; false where nothing runs. */
static bool run_until_next(void)
{
    static unsigned short crowd[MOST_LINKS];
    CUstream stream;
    double least = -1;
    int place;
    memset(crowd, 0, sizeof crowd);
    for (stream = streams; stream != NULL; stream = stream->next)
        for (place = 0; runs(stream) && place < stream->head->route.link_count; place++)
            crowd[stream->head->route.links[place]]++;
    for (stream = streams; stream != NULL; stream = stream->next)
        if (runs(stream)) {
            const double left = stream->head->left * seconds(stream, crowd);
            if (least < 0 || left < least)
                least = left;
        }
    if (least < 0)
        return false;
    for (stream = streams; stream != NULL; stream = stream->next)
        if (runs(stream)) {
            const double whole = seconds(stream, crowd);
            stream->head->left = whole > 0 ? stream->head->left - least / whole : 0;
        }
    now += least;
    for (stream = streams; stream != NULL; stream = stream->next)
        if (runs(stream) && stream->head->left <= ENOUGH)
            complete(stream);
    return true;
}

static void lose_gpus(void)
{
    CUcontext context;
    for (context = contexts; context != NULL; context = context->next)
        if (context->alive && context->sticky == SUCCESS && machine_lost(context->gpu))
            fail(context, UNKNOWN);
}

static void drop_closed(void)
{
    CUstream *link = &streams;
    while (*link != NULL) {
        CUstream gone = *link;
        if (!gone->closed || gone->head != NULL) {
            link = &gone->next;
            continue;
        }
        *link = gone->next;
        free(gone);
    }
}

void advance(void)
{
    machine_refresh();
    lose_gpus();
    do
        start_all();
    while (run_until_next());
    pinned_settle_all();
    drop_closed();
}
