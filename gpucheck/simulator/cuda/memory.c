/*
 * What device memory holds. An allocation is a row of pieces of 64 KiB; each is zeros (NULL), a rule (one word all over,
 * or a pattern), or bytes. Pieces are shared by all holders of the same content and copied when one of them is written:
 * 256 MiB that a kernel filled and copies carried on take a few hundred KiB of host memory, and no time.
 */
#include <stdlib.h>
#include <string.h>

#include "pieces.h"

struct allocation *allocations;

struct allocation *allocation_of(unsigned long long address, unsigned long long size)
{
    struct allocation *one;
    for (one = allocations; one != NULL; one = one->next)
        if (address >= one->base && address - one->base < one->size && size <= one->size - (address - one->base))
            return one;
    return NULL;
}

/* A walk over a range, piece by piece. */
struct walk { struct allocation *allocation; unsigned long long at, left; };
struct stretch { struct piece **slot; size_t offset, size; };

static struct walk walk_over(unsigned long long address, unsigned long long size)
{
    struct allocation *allocation = allocation_of(address, size);
    return (struct walk){allocation, allocation == NULL ? 0 : address - allocation->base, allocation == NULL ? 0 : size};
}

static bool step(struct walk *walk, struct stretch *out)
{
    if (walk->left == 0)
        return false;
    out->slot = &walk->allocation->pieces[walk->at / PIECE];
    out->offset = walk->at % PIECE;
    out->size = PIECE - out->offset < walk->left ? PIECE - out->offset : (size_t)walk->left;
    walk->at += out->size;
    walk->left -= out->size;
    return true;
}

static void read_piece(const struct piece *piece, size_t offset, void *out, size_t size)
{
    unsigned char *to = out;
    while (size > 0) {
        const unsigned long long word = piece_word(piece, offset / 8);
        const size_t within = offset % 8, part = 8 - within < size ? 8 - within : size;
        if (within == 0 && size >= 8 && ((uintptr_t)to & 7) == 0) {
            piece_expand(piece, (unsigned long long *)(void *)to, offset / 8, size / 8);
            to += size / 8 * 8;
            offset += size / 8 * 8;
            size %= 8;
            continue;
        }
        memcpy(to, (const unsigned char *)&word + within, part);
        to += part;
        offset += part;
        size -= part;
    }
}

void memory_read(unsigned long long address, void *out, unsigned long long size)
{
    struct walk walk = walk_over(address, size);
    struct stretch stretch;
    unsigned char *to = out;
    while (step(&walk, &stretch)) {
        read_piece(*stretch.slot, stretch.offset, to, stretch.size);
        to += stretch.size;
    }
}

void memory_write(unsigned long long address, const void *data, unsigned long long size)
{
    struct walk walk = walk_over(address, size);
    struct stretch stretch;
    const unsigned char *from = data;
    while (step(&walk, &stretch)) {
        if (stretch.size == PIECE) {
            struct piece *fresh = piece_of(from);
            piece_drop(*stretch.slot);
            *stretch.slot = fresh;
        } else {
            memcpy(piece_writable(stretch.slot) + stretch.offset, from, stretch.size);
        }
        from += stretch.size;
    }
}

void memory_fill(unsigned long long address, unsigned long long word, unsigned long long size)
{
    struct walk walk = walk_over(address, size);
    struct stretch stretch;
    size_t place;
    while (step(&walk, &stretch)) {
        if (stretch.size == PIECE) {
            piece_rule(stretch.slot, WORD, word);
            continue;
        }
        unsigned char *bytes = piece_writable(stretch.slot);
        for (place = 0; place < stretch.size; place++)
            bytes[stretch.offset + place] = (unsigned char)(word >> place % 8 * 8);
    }
}

void memory_pattern(unsigned long long address, unsigned long long key, unsigned long long words)
{
    struct walk walk = walk_over(address, words * 8);
    struct stretch stretch;
    size_t place;
    while (step(&walk, &stretch)) {
        if (stretch.size == PIECE) {
            piece_rule(stretch.slot, PATTERN, key);
        } else {
            unsigned char *bytes = piece_writable(stretch.slot) + stretch.offset;
            for (place = 0; place < stretch.size / 8; place++)
                memcpy(bytes + place * 8, &(unsigned long long){mix(key + place * STRIDE)}, 8);
        }
        key += stretch.size / 8 * STRIDE;
    }
}

/* Inverts a bit of one word of every FLIP_EVERY, counted from `address`. A rule stays a rule: nothing is written out. */
void memory_flip(unsigned long long address, unsigned long long size)
{
    struct walk walk = walk_over(address, size);
    struct stretch stretch;
    unsigned long long next = FLIP_AT; /* words from the beginning of the stretch */
    while (step(&walk, &stretch)) {
        const unsigned long long words = stretch.size / 8;
        if (stretch.size == PIECE) {
            piece_flip(stretch.slot, (unsigned int)next);
        } else {
            unsigned long long place;
            unsigned char *bytes = next < words ? piece_writable(stretch.slot) + stretch.offset : NULL;
            for (place = next; place < words; place += FLIP_EVERY)
                bytes[place * 8 + FLIP_BIT / 8] ^= 1 << FLIP_BIT % 8;
        }
        next = (next + FLIP_EVERY - words % FLIP_EVERY) % FLIP_EVERY;
    }
}

/* Ranges that overlap are undefined here, as they are in CUDA. */
void memory_copy(unsigned long long to, unsigned long long from, unsigned long long size)
{
    struct allocation *source = allocation_of(from, size), *target = allocation_of(to, size);
    static unsigned char spare[PIECE];
    if (source == NULL || target == NULL)
        return;
    const bool aligned = (from - source->base) % PIECE == (to - target->base) % PIECE;
    while (size > 0) {
        const size_t room = PIECE - (size_t)((to - target->base) % PIECE), part = room < size ? room : (size_t)size;
        if (aligned && part == PIECE) {
            struct piece *piece = source->pieces[(from - source->base) / PIECE];
            struct piece **slot = &target->pieces[(to - target->base) / PIECE];
            piece_hold(piece);
            piece_drop(*slot);
            *slot = piece;
        } else {
            memory_read(from, spare, part);
            memory_write(to, spare, part);
        }
        size -= part;
        from += part;
        to += part;
    }
}

/* True where the range is known to be this pattern without reading it. */
bool memory_is_pattern(unsigned long long address, unsigned long long key, unsigned long long words)
{
    struct walk walk = walk_over(address, words * 8);
    struct stretch stretch;
    while (step(&walk, &stretch)) {
        const struct piece *piece = *stretch.slot;
        if (piece == NULL || piece->content != PATTERN || piece->flipped != NO_FLIP || piece->value + stretch.offset / 8 * STRIDE != key ||
            stretch.offset % 8 != 0)
            return false;
        key += stretch.size / 8 * STRIDE;
    }
    return true;
}

/* The slot of a piece that begins at this address and lies whole in its allocation, else NULL. */
struct piece **memory_slot(unsigned long long address)
{
    struct allocation *allocation = allocation_of(address, PIECE);
    return allocation == NULL || (address - allocation->base) % PIECE != 0
               ? NULL
               : &allocation->pieces[(address - allocation->base) / PIECE];
}

void memory_forget(struct allocation *allocation)
{
    unsigned long long place;
    for (place = 0; place < (allocation->size + PIECE - 1) / PIECE; place++)
        piece_drop(allocation->pieces[place]);
    free(allocation->pieces);
}
