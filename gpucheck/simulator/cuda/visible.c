/* Which GPUs a process sees and in which order: CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER, MIG. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct gpu gpus[MAX_GPUS];
int gpu_count;

static void text_of(char *out, size_t size, const struct gpu *gpu, const char *key)
{
    const char *value = machine_text("%s.%s", gpu->prefix, key);
    snprintf(out, size, "%s", value != NULL && *value != '!' ? value : "");
}

static struct gpu read_gpu(int number, int mig)
{
    struct gpu gpu = {.number = number, .mig = mig};
    if (mig < 0)
        snprintf(gpu.prefix, sizeof gpu.prefix, "gpu.%d", number);
    else
        snprintf(gpu.prefix, sizeof gpu.prefix, "gpu.%d.mig.%d", number, mig);
    text_of(gpu.name, sizeof gpu.name, &gpu, "name");
    text_of(gpu.uuid, sizeof gpu.uuid, &gpu, "uuid");
    snprintf(gpu.bus_id, sizeof gpu.bus_id, "%.12s", machine_text("gpu.%d.bus_id", number));
    gpu.memory = (unsigned long long)machine_number(0, "%s.memory.total", gpu.prefix);
    gpu.used = (unsigned long long)(machine_number(0, "%s.memory.used", gpu.prefix) +
                                    machine_number(0, "%s.memory.reserved", gpu.prefix));
    gpu.numa = (int)machine_number(0, "gpu.%d.numa_nodes", number);
    gpu.major = (int)machine_number(0, "gpu.%d.compute.major", number);
    gpu.minor = (int)machine_number(0, "gpu.%d.compute.minor", number);
    gpu.compute_mode = (int)machine_number(0, "gpu.%d.compute_mode", number);
    return gpu;
}

static bool divided(int number)
{
    return machine_number(0, "gpu.%d.mig.current", number) == 1;
}

/* Faster ones first, as CUDA orders them; identical ones stay in the order of the bus. */
static void sort(struct gpu *all, int count)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    int place, at;
    if (order != NULL && strcmp(order, "PCI_BUS_ID") == 0)
        return;
    for (place = 1; place < count; place++)
        for (at = place; at > 0; at--) {
            struct gpu *low = &all[at - 1], *high = &all[at], spare;
            if (low->major * 10 + low->minor >= high->major * 10 + high->minor)
                break;
            spare = *low;
            *low = *high;
            *high = spare;
        }
}

static bool closed(int number)
{
    char node[32];
    snprintf(node, sizeof node, "nvidia%lld", machine_number(number, "gpu.%d.minor", number));
    return machine_lacks(node);
}

/* Every GPU that is not divided, or, where one is, the MIG devices: CUDA then shows no whole GPU. */
static int candidates(struct gpu *out)
{
    int number, mig, count = 0;
    const int all = (int)machine_number(0, "gpu.count");
    for (number = 0; number < all && count < MAX_GPUS; number++)
        for (mig = 0; divided(number) && !closed(number) && count < MAX_GPUS && mig < machine_number(0, "gpu.%d.mig.count", number); mig++)
            out[count++] = read_gpu(number, mig);
    if (count > 0)
        return count;
    for (number = 0; number < all && count < MAX_GPUS; number++)
        if (!divided(number) && !closed(number))
            out[count++] = read_gpu(number, -1);
    sort(out, count);
    return count;
}

/* The GPU that a word of CUDA_VISIBLE_DEVICES names, by its number or the beginning of its UUID; -1 for none. */
static int named(const char *word, const struct gpu *all, int count)
{
    char *end;
    const long number = strtol(word, &end, 10);
    int place, found = -1;
    if (end != word && *end == '\0')
        return number >= 0 && number < count ? (int)number : -1;
    if (strncmp(word, "GPU-", 4) != 0 && strncmp(word, "MIG-", 4) != 0)
        return -1;
    for (place = 0; place < count; place++)
        if (strncmp(all[place].uuid, word, strlen(word)) == 0) {
            if (found >= 0)
                return -1;
            found = place;
        }
    return found;
}

/* The first word that names no GPU ends the list, and a GPU named twice empties it. */
static void choose(const struct gpu *all, int count, const char *wanted)
{
    char *text = strdup(wanted), *rest = text, *word;
    bool taken[MAX_GPUS] = {false};
    while (text != NULL && (word = strsep(&rest, ",")) != NULL) {
        int place;
        while (*word == ' ')
            word++;
        place = named(word, all, count);
        if (place < 0)
            break;
        if (taken[place]) {
            gpu_count = 0;
            break;
        }
        taken[place] = true;
        gpus[gpu_count++] = all[place];
    }
    free(text);
}

CUresult visible_read(void)
{
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    struct gpu all[MAX_GPUS];
    const int count = candidates(all);
    gpu_count = 0;
    if (wanted != NULL)
        choose(all, count, wanted);
    else
        for (; gpu_count < count; gpu_count++)
            gpus[gpu_count] = all[gpu_count];
    if (gpu_count > 1 && gpus[0].mig >= 0)
        gpu_count = 1; /* a process works on one MIG device, however many there are */
    if (gpu_count == 0)
        return NO_DEVICE;
    return routes_read() ? SUCCESS : UNKNOWN;
}
