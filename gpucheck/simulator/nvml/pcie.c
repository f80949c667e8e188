/* Where a GPU sits on the PCI bus, and the link that it sits on. */
#include "simulator.h"

nvmlReturn_t fill_pci(nvmlPciInfo_t *out, const char *prefix)
{
    const char *bus_id;
    char words[40];
    unsigned int place[3];
    TRY(find_text(&bus_id, "%s.bus_id", prefix));
    memset(out, 0, sizeof *out);
    if (!parse_bus_id(bus_id, place))
        return UNKNOWN;
    out->domain = place[0];
    out->bus = place[1] & 0xFF;
    out->device = place[2] & 0x1F;
    out->pciDeviceId = (unsigned int)number_or(0, "%s.pci_device_id", prefix);
    out->pciSubSystemId = (unsigned int)number_or(0, "%s.pci_subsystem_id", prefix);
    snprintf(words, sizeof words, "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
    write_text(out->busId, sizeof out->busId, words);
    snprintf(words, sizeof words, "%04X:%02X:%02X.0", out->domain & 0xFFFF, out->bus, out->device);
    write_text(out->busIdLegacy, sizeof out->busIdLegacy, words);
    return SUCCESS;
}

static nvmlReturn_t pci(const char *call, nvmlDevice_t device, nvmlPciInfo_t *out, struct subject *subject)
{
    TRY(enter_device(call, device, subject));
    return out == NULL ? INVALID_ARGUMENT : fill_pci(out, subject->prefix);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    struct subject subject;
    return pci(__func__, device, out, &subject);
}

/* As before version 3: 16 characters of bus id, and four reserved words. */
typedef struct { char busId[16]; unsigned int place[5], reserved[4]; } nvmlPciInfo_v2_t;

static nvmlReturn_t pci_v2(const char *call, nvmlDevice_t device, nvmlPciInfo_v2_t *out)
{
    nvmlPciInfo_t seen;
    struct subject subject;
    TRY(pci(call, device, out == NULL ? NULL : &seen, &subject));
    *out = (nvmlPciInfo_v2_t){.place = {seen.domain, seen.bus, seen.device, seen.pciDeviceId, seen.pciSubSystemId}};
    memcpy(out->busId, seen.busIdLegacy, sizeof out->busId);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *out) { return pci_v2(__func__, device, out); }
nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *out) { return pci_v2(__func__, device, out); }

typedef struct {
    unsigned int version, place[3], deviceId, subsystemId, baseClass, subClass;
    char busId[32];
} nvmlPciInfoExt_t;

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *out)
{
    nvmlPciInfo_t seen;
    struct subject subject;
    unsigned int class_id;
    TRY(pci(__func__, device, out == NULL ? NULL : &seen, &subject));
    if (out->version != 0x01000040)
        return ARGUMENT_VERSION_MISMATCH;
    class_id = (unsigned int)number_or(0, "%s.pci_class", subject.prefix);
    *out = (nvmlPciInfoExt_t){out->version, {seen.domain, seen.bus, seen.device}, seen.pciDeviceId,
                              seen.pciSubSystemId, class_id >> 16, class_id >> 8 & 0xFF, ""};
    memcpy(out->busId, seen.busId, sizeof out->busId);
    return SUCCESS;
}

NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.generation")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.max_generation")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie.max_width")
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie.device_max_generation")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie.replays")
CHOICE(nvmlDeviceGetPcieThroughput, "pcie.throughput_kb_s", 2)
