/* The kernels that are known by name, in C. Described in gpucheck/measure/engines/driver/kernels.ptx. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define BYTES_S 500e9 /* of a kernel that reads or writes its own GPU's memory: a round number */
#define START_S 1e-6
#define AT_ONCE (PIECE / 8)

static bool reaches(CUcontext context, unsigned long long address, unsigned long long size, unsigned int grain)
{
    const int owner = size > 0 ? owner_of(address, size) : context->gpu;
    if (address % grain != 0 || owner == NO_OWNER)
        return false;
    if (owner == HOST) {
        const struct host_range *range = host_range_of((const void *)(uintptr_t)address);
        return range != NULL && size <= range->size - (address - (uintptr_t)range->base);
    }
    return may_access(context, owner);
}

/* The ranges that the kernel will touch. What it may not touch ends it when it runs, not when it is launched. */
static bool legal(const struct operation *operation, CUcontext context)
{
    const unsigned long long *a = operation->arguments;
    if (a[2] > 1ULL << 60)
        return false;
    switch (operation->kernel) {
    case K_FILL:
    case K_POISON:
        return reaches(context, a[0], a[2] * 8, 8);
    case K_COMPARE:
        return a[4] < 1ULL << 40 && reaches(context, a[0], a[2] * 8, 8) && reaches(context, a[3], (3 + 2 * a[4]) * 8, 8);
    case K_COPY:
        return reaches(context, a[0], a[2] * 16, 16) && reaches(context, a[1], a[2] * 16, 16);
    case K_SPIN:
        return true;
    case K_CHAIN:
        return a[1] < 1ULL << 40 && (a[2] == 0 || reaches(context, a[0], (a[2] - 1) * a[1] + 8, 8));
    default:
        return reaches(context, a[0], 8, 8) && reaches(context, a[2], 8, 8);
    }
}

/* Everything but the end of the launch. An error of the pair that is no sticky one is the launch's. */
CUresult prepare_kernel(struct operation *made, CUcontext context)
{
    const struct pair *pair;
    made->count = 1;
    made->illegal = !legal(made, context);
    if (made->kernel != K_COPY || made->illegal)
        return SUCCESS;
    made->dst = made->arguments[0];
    made->src = made->arguments[1];
    made->size = made->arguments[2] * 16;
    made->to = owner_of(made->dst, made->size);
    made->from = owner_of(made->src, made->size);
    made->direct = true;
    machine_refresh();
    pair = pair_of(made->from, made->to);
    return pair != NULL && pair->error != SUCCESS && !is_sticky(pair->error) ? pair->error : SUCCESS;
}

double kernel_seconds(const struct operation *operation, int gpu)
{
    const unsigned long long *a = operation->arguments;
    if (operation->kernel == K_SPIN)
        return (double)a[0] * 1e-9;
    if (operation->kernel == K_CHASE)
        return (double)a[1] * chase_seconds(gpu, owner_of(a[0], 8));
    return START_S + (double)a[2] * 8 / BYTES_S;
}

/* Memory of a GPU or pinned memory. */
static void read_memory(unsigned long long address, void *out, unsigned long long size)
{
    if (owner_of(address, size) >= 0) {
        memory_read(address, out, size);
    } else {
        pinned_settle(host_range_of((const void *)(uintptr_t)address));
        memcpy(out, (const void *)(uintptr_t)address, size);
    }
}

static void write_memory(unsigned long long address, const void *data, unsigned long long size)
{
    if (owner_of(address, size) >= 0) {
        memory_write(address, data, size);
    } else {
        pinned_settle_all();
        memcpy((void *)(uintptr_t)address, data, size);
    }
}

static void fill(const unsigned long long *a)
{
    unsigned long long place;
    if (owner_of(a[0], a[2] * 8) >= 0) {
        memory_pattern(a[0], a[1], a[2]);
        return;
    }
    for (place = 0; place < a[2]; place++)
        write_memory(a[0] + place * 8, &(unsigned long long){mix(a[1] + place * STRIDE)}, 8);
}

static void poison(const unsigned long long *a)
{
    unsigned long long place;
    if (owner_of(a[0], a[2] * 8) >= 0) {
        memory_fill(a[0], a[1], a[2] * 8);
        return;
    }
    for (place = 0; place < a[2]; place++)
        write_memory(a[0] + place * 8, &a[1], 8);
}

/* note: how many, first, last, then index and content of the first `cap`. */
static void compare(const unsigned long long *a)
{
    static unsigned long long words[AT_ONCE];
    unsigned long long note[3], first, place;
    read_memory(a[3], note, sizeof note);
    for (first = 0; first < a[2]; first += AT_ONCE) {
        const unsigned long long count = a[2] - first < AT_ONCE ? a[2] - first : AT_ONCE;
        const unsigned long long key = a[1] + first * STRIDE;
        if (owner_of(a[0], 8) >= 0 && memory_is_pattern(a[0] + first * 8, key, count))
            continue;
        read_memory(a[0] + first * 8, words, count * 8);
        for (place = 0; place < count; place++) {
            const unsigned long long index = first + place;
            if (words[place] == mix(key + place * STRIDE))
                continue;
            if (note[0] < a[4])
                write_memory(a[3] + (3 + 2 * note[0]) * 8, (unsigned long long[]){index, words[place]}, 16);
            note[0]++;
            note[1] = index < note[1] ? index : note[1];
            note[2] = index > note[2] ? index : note[2];
        }
    }
    write_memory(a[3], note, sizeof note);
}

static void chain(const unsigned long long *a)
{
    unsigned long long place;
    for (place = 0; place < a[2]; place++)
        write_memory(a[0] + place * a[1], &(unsigned long long){a[0] + (place + 1) % a[2] * a[1]}, 8);
}

/* False where an address leads out of memory that the context may use. */
static bool chase(const unsigned long long *a, CUcontext context)
{
    unsigned long long at = a[0], left;
    for (left = a[1]; left > 0; left--) {
        if (!reaches(context, at, 8, 8))
            return false;
        read_memory(at, &at, 8);
    }
    write_memory(a[2], &at, 8);
    return true;
}

/* False for an illegal address. */
bool run_kernel(const struct operation *operation, CUcontext context)
{
    const unsigned long long *a = operation->arguments;
    if (a[2] == 0 || operation->illegal)
        return !operation->illegal;
    switch (operation->kernel) {
    case K_FILL:
        fill(a);
        return true;
    case K_POISON:
        poison(a);
        return true;
    case K_COMPARE:
        compare(a);
        return true;
    case K_COPY:
        arrive(operation);
        return true;
    case K_CHAIN:
        chain(a);
        return true;
    default:
        return chase(a, context);
    }
}
