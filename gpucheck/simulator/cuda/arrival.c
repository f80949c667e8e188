/* What a copy puts at its destination: the data, or what the fault of its pair makes of it. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define REMEMBERED 64
#define SHIFT_WORDS 512

/* What earlier copies carried, for data that arrives too late or in the wrong place; pieces are shared, so it is cheap. */
struct delivered { int from, to; unsigned long long dst, size; struct allocation data; };
static struct delivered delivered[REMEMBERED];
static unsigned int next_place;

#define HELD 0x1000ULL /* where a remembered copy stands while it is read: no allocation is there */

static void remember(const struct operation *operation, struct delivered *place)
{
    const unsigned long long pieces = operation->size / PIECE + 1;
    if (place == NULL)
        place = &delivered[next_place++ % REMEMBERED];
    if (place->data.pieces != NULL)
        memory_forget(&place->data);
    *place = (struct delivered){operation->from, operation->to, operation->dst, operation->size, {0}};
    place->data.size = operation->size;
    if ((place->data.pieces = calloc(pieces, sizeof *place->data.pieces)) == NULL)
        abort();
    place->data.base = HELD;
    place->data.next = allocations;
    allocations = &place->data;
    memory_copy(HELD, operation->src, operation->size);
    allocations = place->data.next;
}

static void deliver(const struct operation *operation, struct delivered *place)
{
    place->data.next = allocations;
    allocations = &place->data;
    memory_copy(operation->dst, HELD, operation->size);
    allocations = place->data.next;
}

/* The last copy of the same pair to the same place, or (other) of another source; NULL where there was none. */
static struct delivered *earlier(const struct operation *operation, bool other)
{
    unsigned int back;
    for (back = 1; back <= REMEMBERED && back <= next_place; back++) {
        struct delivered *one = &delivered[(next_place - back) % REMEMBERED];
        const bool fits = other ? one->from != operation->from
                                : one->from == operation->from && one->to == operation->to && one->dst == operation->dst;
        if (fits && one->size == operation->size)
            return one;
    }
    return NULL;
}

static unsigned long long word_at(unsigned long long address)
{
    unsigned long long word = 0;
    memory_read(address, &word, sizeof word);
    return word;
}

static void shift(const struct operation *operation)
{
    const unsigned long long words = operation->size / 8;
    const unsigned long long by = (words / 4 < SHIFT_WORDS ? words / 4 : SHIFT_WORDS) * 8;
    memory_copy(operation->dst, operation->src + by, words * 8 - by);
    memory_copy(operation->dst + words * 8 - by, operation->src, by);
}

/* What stands at the same place of another GPU's buffer of the same kind: the same size, and as many of it before. */
static unsigned long long counterpart(const struct operation *operation)
{
    const struct allocation *own = allocation_of(operation->src, operation->size), *one, *before;
    int rank = 0, place;
    for (before = own->next; before != NULL; before = before->next)
        rank += before->context == own->context && before->size == own->size;
    for (one = allocations; one != NULL; one = one->next) {
        const unsigned long long at = one->base + (operation->src - own->base);
        if (one->size != own->size || one->context->gpu == operation->from)
            continue;
        place = 0;
        for (before = one->next; before != NULL; before = before->next)
            place += before->context == one->context && before->size == one->size;
        if (place == rank && word_at(at) != 0)
            return at;
    }
    return operation->src;
}

static void damaged(const struct operation *operation, enum damage damage)
{
    struct delivered *old = damage == STALE || damage == OTHER_PAIR ? earlier(operation, damage == OTHER_PAIR) : NULL;
    switch (damage) {
    case UNTOUCHED:
        return;
    case ZEROS:
        memory_fill(operation->dst, 0, operation->size);
        return;
    case SHIFTED:
        shift(operation);
        return;
    default:
        if (old != NULL)
            deliver(operation, old);
        else
            memory_copy(operation->dst, damage == OTHER_PAIR ? counterpart(operation) : operation->src, operation->size);
        if (damage == BIT_FLIP)
            memory_flip(operation->dst, operation->size);
        if (damage == STALE)
            remember(operation, old);
    }
}

void arrive(const struct operation *operation)
{
    const struct pair *pair = operation->route.pair;
    char *host_dst = (char *)(uintptr_t)operation->dst;
    const char *host_src = (const char *)(uintptr_t)operation->src;
    if (operation->to == HOST && operation->from == HOST)
        memmove(host_dst, host_src, operation->size);
    else if (operation->to == HOST)
        device_to_host(host_dst, operation->src, operation->size);
    else if (operation->from == HOST)
        host_to_device(operation->dst, host_src, operation->size);
    else if (pair != NULL && pair->damage != WHOLE)
        damaged(operation, pair->damage);
    else
        memory_copy(operation->dst, operation->src, operation->size);
    /* Small copies measure latency, and would push out what matters. */
    if (copies_are_remembered && pair != NULL && operation->size >= 4096 && pair->damage != STALE)
        remember(operation, earlier(operation, false));
}
