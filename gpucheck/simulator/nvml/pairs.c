/* Two GPUs and the way between them; the CPUs and the memory that are near a GPU. */
#include <ctype.h>
#include <stdlib.h>

#include "simulator.h"

static nvmlReturn_t enter_two(const char *call, nvmlDevice_t a, nvmlDevice_t b, struct subject two[2],
                              nvmlReturn_t (*check)(nvmlDevice_t, struct subject *))
{
    nvmlReturn_t result = enter(call);
    if (result == SUCCESS)
        result = check(a, &two[0]);
    if (result == SUCCESS)
        result = check(b, &two[1]);
    return result == SUCCESS && (two[0].mig >= 0 || two[1].mig >= 0) ? NOT_SUPPORTED : result;
}

/* Query the operating system for both locations, which also works for a GPU that fell off the bus. */
static nvmlReturn_t check_place(nvmlDevice_t device, struct subject *out)
{
    TRY(check_handle(device, out));
    return enter_gpu(out->gpu);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, unsigned int *level)
{
    unsigned long long value;
    struct subject two[2];
    TRY(enter_two(__func__, a, b, two, check_place));
    TRY(level == NULL ? INVALID_ARGUMENT : find_number(&value, "gpu.%d.ancestor.%d", two[0].gpu, two[1].gpu));
    *level = (unsigned int)value;
    return SUCCESS;
}

static int outside_fabric(int gpu)
{
    const char *state;
    return find_text(&state, "gpu.%d.fabric.state", gpu) == SUCCESS && strcmp(state, "completed") != 0;
}

/* Paths through NVSwitch exist only once both GPUs are registered: until then the `.no_fabric` value applies. */
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, unsigned int capability, unsigned int *status)
{
    unsigned long long value;
    struct subject two[2];
    nvmlReturn_t result = enter_two(__func__, a, b, two, check_device);
    if (result == SUCCESS && (status == NULL || a == b || capability > 5))
        result = INVALID_ARGUMENT;
    if (result != SUCCESS)
        return result;
    result = NOT_SUPPORTED;
    if (outside_fabric(two[0].gpu) || outside_fabric(two[1].gpu))
        result = find_number(&value, "gpu.%d.p2p.%d.%u.no_fabric", two[0].gpu, two[1].gpu, capability);
    if (result != SUCCESS)
        result = find_number(&value, "gpu.%d.p2p.%d.%u", two[0].gpu, two[1].gpu, capability);
    if (result == SUCCESS)
        *status = (unsigned int)value;
    return result;
}

/* ---- affinity ---- */

/* The next run of a Linux list such as 0-15,32-47, and where the rest of the list begins; NULL after the last. */
static const char *next_run(const char *list, unsigned long *first, unsigned long *last)
{
    char *end;
    if (!isdigit((unsigned char)*list))
        return NULL;
    *first = *last = strtoul(list, &end, 10);
    if (*end == '-')
        *last = strtoul(end + 1, &end, 10);
    return *end == ',' ? end + 1 : end;
}

/* The list as a bit set. INSUFFICIENT_SIZE if its highest bit does not fit. */
static nvmlReturn_t bit_set(const char *list, unsigned int words, unsigned long *out)
{
    const unsigned long width = 8 * sizeof *out;
    unsigned long first, last;
    memset(out, 0, words * sizeof *out);
    while ((list = next_run(list, &first, &last)) != NULL) {
        if (last / width >= words)
            return INSUFFICIENT_SIZE;
        for (; first <= last; first++)
            out[first / width] |= 1UL << (first % width);
    }
    return SUCCESS;
}

static nvmlReturn_t affinity(const char *call, nvmlDevice_t device, const char *key, unsigned int words, unsigned long *out)
{
    const char *list;
    struct subject subject;
    TRY(enter_device(call, device, &subject));
    TRY(out == NULL || words == 0 ? INVALID_ARGUMENT : find_text(&list, "gpu.%d.%s", subject.gpu, key));
    return bit_set(list, words, out);
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *out)
{
    return affinity(__func__, device, "cpus", words, out);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *out, unsigned int scope)
{
    return affinity(__func__, device, "numa_nodes", words, scope < 2 ? out : NULL);
}
