/* Pieces of memory: shared by all holders of the same content, copied when one of the holders writes. */
#include <stdlib.h>
#include <string.h>

#include "pieces.h"

unsigned long long mix(unsigned long long word)
{
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL;
    return word ^ (word >> 31);
}

struct piece *piece_hold(struct piece *piece)
{
    if (piece != NULL)
        piece->holders++;
    return piece;
}

void piece_drop(struct piece *piece)
{
    if (piece != NULL && --piece->holders == 0)
        free(piece);
}

static struct piece *new_piece(enum content content, unsigned long long value)
{
    struct piece *piece = malloc(sizeof *piece + (content == BYTES ? PIECE : 0));
    if (piece == NULL)
        abort(); /* the host is out of memory: no CUDA error code reports this, and nothing could continue */
    *piece = (struct piece){.holders = 1, .content = content, .flipped = NO_FLIP, .value = value};
    return piece;
}

unsigned long long piece_word(const struct piece *piece, size_t place)
{
    if (piece == NULL)
        return 0;
    if (piece->content == BYTES)
        return piece->words[place];
    const unsigned long long word = piece->content == WORD ? piece->value : mix(piece->value + place * STRIDE);
    return place % FLIP_EVERY == piece->flipped ? word ^ 1ULL << FLIP_BIT : word;
}

void piece_expand(const struct piece *piece, unsigned long long *out, size_t first, size_t count)
{
    unsigned long long key;
    size_t place;
    if (piece == NULL) {
        memset(out, 0, count * 8);
    } else if (piece->content == BYTES) {
        memcpy(out, piece->words + first, count * 8);
    } else if (piece->content == WORD) {
        const unsigned long long word = piece->value;
        for (place = 0; place < count; place++)
            out[place] = word;
    } else {
        /* A loop of its own: most of the time of a simulated run was spent here. */
        for (place = 0, key = piece->value + first * STRIDE; place < count; place++, key += STRIDE)
            out[place] = mix(key);
    }
    if (piece != NULL && piece->flipped != NO_FLIP)
        for (place = (piece->flipped + FLIP_EVERY - first % FLIP_EVERY) % FLIP_EVERY; place < count; place += FLIP_EVERY)
            out[place] ^= 1ULL << FLIP_BIT;
}

unsigned char *piece_writable(struct piece **slot)
{
    struct piece *fresh;
    if (*slot != NULL && (*slot)->content == BYTES && (*slot)->holders == 1)
        return (unsigned char *)(*slot)->words;
    fresh = new_piece(BYTES, 0);
    piece_expand(*slot, fresh->words, 0, WORDS);
    piece_drop(*slot);
    *slot = fresh;
    return (unsigned char *)fresh->words;
}

void piece_rule(struct piece **slot, enum content content, unsigned long long value)
{
    piece_drop(*slot);
    *slot = content == WORD && value == 0 ? NULL : new_piece(content, value);
}

/* `word`: the first of those whose bit is inverted. */
void piece_flip(struct piece **slot, unsigned int word)
{
    struct piece *fresh, *piece = *slot;
    if (piece == NULL || (piece->content != BYTES && piece->flipped == NO_FLIP)) {
        fresh = new_piece(piece == NULL ? WORD : piece->content, piece == NULL ? 0 : piece->value);
        fresh->flipped = word;
        piece_drop(piece);
        *slot = fresh;
        return;
    }
    for (unsigned char *bytes = piece_writable(slot); word < WORDS; word += FLIP_EVERY)
        bytes[word * 8 + FLIP_BIT / 8] ^= 1 << FLIP_BIT % 8;
}

static bool all_zero(const unsigned char *data)
{
    return data[0] == 0 && memcmp(data, data + 1, PIECE - 1) == 0;
}

struct piece *piece_of(const void *data)
{
    struct piece *piece;
    if (all_zero(data))
        return NULL;
    piece = new_piece(BYTES, 0);
    memcpy(piece->words, data, PIECE);
    return piece;
}

bool piece_matches(const struct piece *piece, const void *data)
{
    const unsigned long long *words = data;
    unsigned long long key;
    size_t place;
    if (piece == NULL)
        return all_zero(data);
    if (piece->content == BYTES)
        return memcmp(piece->words, data, PIECE) == 0;
    if (piece->flipped != NO_FLIP) {
        for (place = 0; place < WORDS && words[place] == piece_word(piece, place); place++)
            ;
        return place == WORDS;
    }
    if (piece->content == WORD)
        return words[0] == piece->value && memcmp(words, words + 1, PIECE - sizeof *words) == 0;
    for (place = 0, key = piece->value; place < WORDS && words[place] == mix(key); place++)
        key += STRIDE;
    return place == WORDS;
}
