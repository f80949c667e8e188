/*
 * What pinned memory of the host holds. Large ranges are files in memory, and remember which piece of a GPU's memory was
 * last copied to or from each 64 KiB: data that a later copy of the same moment overwrites is never written, what the host
 * has not changed is not stored twice, and pages without access stay untouched.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pieces.h"

/* at: the moment (see `moment`) at which host memory and piece were the same. late: the host's is still to be written. */
struct shadow { struct piece *piece; unsigned long long at; bool late; };

static unsigned long long moment = 1; /* the host does not run between two copies of one */

static struct host_range *file_range(const char *address, unsigned long long size)
{
    struct host_range *range = host_range_of(address);
    const unsigned long long pieces = range == NULL ? 0 : range->size / PIECE;
    if (range == NULL || range->file < 0 || size > range->size - (unsigned long long)(address - range->base))
        return NULL;
    if (range->shadows == NULL)
        range->shadows = calloc(pieces, sizeof *range->shadows);
    return range->shadows == NULL ? NULL : range;
}

/* Whether the file has no page here: nothing was written. */
static bool untouched(const struct host_range *range, unsigned long long at)
{
    const off_t data = lseek(range->file, (off_t)at, SEEK_DATA);
    return data < 0 || (unsigned long long)data >= at + PIECE;
}

static void write_out(const struct host_range *range, unsigned long long place, struct shadow *shadow)
{
    const off_t at = (off_t)(place * PIECE);
    shadow->late = false;
    if (shadow->piece == NULL &&
        fallocate(range->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, PIECE) == 0)
        return;
    piece_expand(shadow->piece, (unsigned long long *)(void *)(range->base + at), 0, WORDS);
}

/* Everything that is late is written, and no piece is trusted any longer: the host may change what it sees now. */
void pinned_settle(struct host_range *range)
{
    unsigned long long place;
    for (place = 0; range->late && place < range->size / PIECE; place++)
        if (range->shadows[place].late)
            write_out(range, place, &range->shadows[place]);
    range->late = false;
}

void pinned_settle_all(void)
{
    struct host_range *range;
    for (range = host_ranges; range != NULL; range = range->next)
        pinned_settle(range);
    moment++;
}

static void shadow_put(struct shadow *shadow, struct piece *piece)
{
    piece_hold(piece);
    piece_drop(shadow->piece);
    shadow->piece = piece;
    shadow->at = moment;
}

/* The piece that holds what the host's memory does here. */
static struct piece *current(const struct host_range *range, unsigned long long place)
{
    struct shadow *shadow = &range->shadows[place];
    if (shadow->at == moment)
        return shadow->piece;
    if (untouched(range, place * PIECE)) {
        shadow_put(shadow, NULL);
    } else if (!piece_matches(shadow->piece, range->base + place * PIECE)) {
        struct piece *fresh = piece_of(range->base + place * PIECE);
        shadow_put(shadow, fresh);
        piece_drop(fresh);
    }
    shadow->at = moment;
    return shadow->piece;
}

/* How far a copy leads in one go: to the end of both pieces, or a whole piece where both begin at one. */
static unsigned long long stretch(const struct host_range *range, const char *host, unsigned long long device,
                                  unsigned long long size, bool *whole)
{
    const unsigned long long at = (unsigned long long)(host - range->base), left = PIECE - at % PIECE;
    *whole = at % PIECE == 0 && size >= PIECE && at / PIECE < range->size / PIECE && memory_slot(device) != NULL;
    return left < size ? left : size;
}

void host_to_device(unsigned long long to, const char *from, unsigned long long size)
{
    struct host_range *range = file_range(from, size);
    if (range == NULL) {
        memory_write(to, from, size);
        return;
    }
    while (size > 0) {
        bool whole;
        const unsigned long long part = stretch(range, from, to, size, &whole);
        if (whole) {
            struct piece **slot = memory_slot(to), *piece = current(range, (unsigned long long)(from - range->base) / PIECE);
            piece_hold(piece);
            piece_drop(*slot);
            *slot = piece;
        } else {
            pinned_settle(range);
            memory_write(to, from, part);
        }
        to += part;
        from += part;
        size -= part;
    }
}

void device_to_host(char *to, unsigned long long from, unsigned long long size)
{
    struct host_range *range = file_range(to, size);
    if (range == NULL) {
        memory_read(from, to, size);
        return;
    }
    while (size > 0) {
        bool whole;
        const unsigned long long part = stretch(range, to, from, size, &whole);
        const unsigned long long place = (unsigned long long)(to - range->base) / PIECE;
        if (whole) {
            shadow_put(&range->shadows[place], *memory_slot(from));
            range->shadows[place].late = range->late = true;
        } else {
            pinned_settle(range);
            memory_read(from, to, part);
            if (place < range->size / PIECE)
                range->shadows[place].at = 0;
        }
        to += part;
        from += part;
        size -= part;
    }
}
