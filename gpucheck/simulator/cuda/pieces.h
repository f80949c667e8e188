/* 64 KiB of memory: what a row of them makes up is an allocation (memory.c), or pinned memory of the host (pinned.c). */
#ifndef GPUCHECK_CUDA_PIECES_H
#define GPUCHECK_CUDA_PIECES_H

#include "driver.h"

enum content { WORD, PATTERN, BYTES };
#define NO_FLIP UINT32_MAX

/*
 * WORD: `value` everywhere. PATTERN: word i is mix(value + i * STRIDE). A piece that is not there (NULL) is zeros.
 * flipped: of a rule, the word of every FLIP_EVERY whose bit FLIP_BIT is inverted; NO_FLIP for none.
 */
struct piece {
    unsigned int holders;
    enum content content;
    unsigned int flipped;
    unsigned long long value;
    unsigned long long words[];
};

struct piece *piece_hold(struct piece *piece);
void piece_drop(struct piece *piece);
struct piece *piece_of(const void *data); /* of PIECE bytes */
bool piece_matches(const struct piece *piece, const void *data);
unsigned long long piece_word(const struct piece *piece, size_t place);
void piece_expand(const struct piece *piece, unsigned long long *out, size_t first, size_t count); /* words */
unsigned char *piece_writable(struct piece **slot); /* bytes without another holder */
void piece_flip(struct piece **slot, unsigned int word);
void piece_rule(struct piece **slot, enum content content, unsigned long long value);

#endif
