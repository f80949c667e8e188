/* NVLink ports, and the registration of a GPU with the NVSwitch fabric. */
#include "simulator.h"

/* A link past the last one is INVALID_ARGUMENT, a GPU without NVLink NOT_SUPPORTED. */
static nvmlReturn_t enter_link(const char *call, nvmlDevice_t device, unsigned int link, struct subject *out)
{
    unsigned long long links = 0;
    nvmlReturn_t result = enter_device(call, device, out);
    if (result == SUCCESS)
        result = find_number(&links, "%s.nvlink.count", out->prefix);
    return result == SUCCESS && link >= links ? INVALID_ARGUMENT : result;
}

static nvmlReturn_t link_number(const char *call, nvmlDevice_t device, unsigned int link, const char *key, unsigned int *out)
{
    unsigned long long value;
    struct subject subject;
    TRY(enter_link(call, device, link, &subject));
    TRY(out == NULL ? INVALID_ARGUMENT : find_number(&value, "%s.nvlink.%u.%s", subject.prefix, link, key));
    *out = (unsigned int)value;
    return SUCCESS;
}

#define LINK(function, key)                                                                                            \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int link, unsigned int *out)                                   \
    {                                                                                                                  \
        return link_number(#function, device, link, key, out);                                                         \
    }
LINK(nvmlDeviceGetNvLinkState, "active")
LINK(nvmlDeviceGetNvLinkVersion, "version")
LINK(nvmlDeviceGetNvLinkRemoteDeviceType, "remote.type")

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, unsigned int capability,
                                           unsigned int *out)
{
    char key[64];
    snprintf(key, sizeof key, "capability.%u", capability);
    return link_number(__func__, device, link, key, capability < 6 ? out : NULL);
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, unsigned int counter,
                                             unsigned long long *out)
{
    struct subject subject;
    TRY(enter_link(__func__, device, link, &subject));
    return out == NULL || counter > 4 ? INVALID_ARGUMENT
                                      : find_number(out, "%s.nvlink.%u.errors.%u", subject.prefix, link, counter);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *out)
{
    char prefix[64];
    struct subject subject;
    TRY(enter_link(__func__, device, link, &subject));
    snprintf(prefix, sizeof prefix, "%s.nvlink.%u.remote", subject.prefix, link);
    return out == NULL ? INVALID_ARGUMENT : fill_pci(out, prefix);
}

/* ---- fabric ---- */

#define CLUSTER_BYTES 16

typedef struct { unsigned char cluster[CLUSTER_BYTES]; unsigned int status, clique, state; } nvmlGpuFabricInfo_t;
typedef struct {
    unsigned int version;
    unsigned char cluster[CLUSTER_BYTES];
    unsigned int status, clique, state, healthMask;
    unsigned char healthSummary; /* from version 3 on */
} nvmlGpuFabricInfoV_t;

/* The cluster's UUID is written as 32 hexadecimal digits, dashes where one likes. */
static void fill_cluster(const char *words, unsigned char *out)
{
    unsigned int byte, used = 0;
    for (; *words != '\0' && used < CLUSTER_BYTES; words++)
        if (*words != '-' && sscanf(words, "%2x", &byte) == 1) {
            out[used++] = (unsigned char)byte;
            words += words[1] != '\0';
        }
}

/* NOT_SUPPORTED where the GPU has no registration to report. */
static nvmlReturn_t fabric(const char *call, nvmlDevice_t device, nvmlGpuFabricInfoV_t *out)
{
    static const char *const states[] = {"not-supported", "not-started", "in-progress", "completed"};
    struct subject subject;
    const char *words;
    TRY(enter_device(call, device, &subject));
    TRY(find_text(&words, "%s.fabric.state", subject.prefix));
    while (out->state < LENGTH(states) && strcmp(words, states[out->state]) != 0)
        out->state++;
    if (out->state == LENGTH(states))
        return UNKNOWN;
    if (find_text(&words, "%s.fabric.cluster", subject.prefix) == SUCCESS)
        fill_cluster(words, out->cluster);
    out->status = (unsigned int)number_or(SUCCESS, "%s.fabric.status", subject.prefix);
    out->clique = (unsigned int)number_or(0, "%s.fabric.clique", subject.prefix);
    out->healthMask = (unsigned int)number_or(0, "%s.fabric.health_mask", subject.prefix);
    out->healthSummary = (unsigned char)number_or(0, "%s.fabric.health_summary", subject.prefix);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out)
{
    nvmlGpuFabricInfoV_t seen = {0};
    TRY(fabric(__func__, device, &seen));
    if (out == NULL)
        return INVALID_ARGUMENT;
    *out = (nvmlGpuFabricInfo_t){.status = seen.status, .clique = seen.clique, .state = seen.state};
    memcpy(out->cluster, seen.cluster, sizeof out->cluster);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out)
{
    nvmlGpuFabricInfoV_t seen = {0};
    TRY(fabric(__func__, device, &seen));
    if (out == NULL)
        return INVALID_ARGUMENT;
    seen.version = out->version;
    if (out->version == 0x02000024) /* 36 bytes: the caller's struct ends before healthSummary */
        memcpy(out, &seen, 0x24);
    else if (out->version == 0x03000028)
        *out = seen;
    else
        return ARGUMENT_VERSION_MISMATCH;
    return SUCCESS;
}

typedef struct { unsigned int version, best; unsigned char mode; } nvmlNvlinkGetBwMode_t;

nvmlReturn_t nvmlDeviceGetNvlinkBwMode(nvmlDevice_t device, nvmlNvlinkGetBwMode_t *out)
{
    unsigned int mode;
    TRY(device_number(__func__, device, "nvlink.bandwidth_mode", out == NULL ? NULL : &mode));
    if (out->version != 0x0100000C)
        return ARGUMENT_VERSION_MISMATCH;
    out->best = mode == 0;
    out->mode = (unsigned char)mode;
    return SUCCESS;
}

nvmlReturn_t nvmlSystemGetNvlinkBwMode(unsigned int *out)
{
    unsigned long long mode;
    TRY(enter(__func__));
    TRY(out == NULL ? INVALID_ARGUMENT : find_number(&mode, "nvlink.bandwidth_mode"));
    *out = (unsigned int)mode;
    return SUCCESS;
}

VERSIONED(nvmlDeviceGetNvLinkInfo, "nvlink.encrypted", 0x01000008)
