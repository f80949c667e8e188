/* Memory errors, and what was done about them: ECC counters, retired pages, remapped rows, repairs. */
#include "simulator.h"

#define CORRECTED_OR_NOT 2
#define VOLATILE_OR_AGGREGATE 2
#define LOCATIONS 8
#define CAUSES 2

PAIR(nvmlDeviceGetEccMode, "ecc.current", "ecc.pending")

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int type, unsigned int span, unsigned long long *out)
{
    char key[64];
    snprintf(key, sizeof key, "ecc.errors.%u.%u", type, span);
    return device_wide(__func__, device, key, type < CORRECTED_OR_NOT && span < VOLATILE_OR_AGGREGATE ? out : NULL);
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int type, unsigned int span,
                                             unsigned int location, unsigned long long *out)
{
    char key[64];
    int known = type < CORRECTED_OR_NOT && span < VOLATILE_OR_AGGREGATE && location < LOCATIONS;
    snprintf(key, sizeof key, "ecc.location.%u.%u.%u", type, span, location);
    return device_wide(__func__, device, key, known ? out : NULL);
}

/* ---- rows, from Ampere on ---- */

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
                                       unsigned int *pending, unsigned int *failed)
{
    static const char *const keys[] = {"remap.correctable", "remap.uncorrectable", "remap.pending", "remap.failed"};
    unsigned int *const out[] = {correctable, uncorrectable, pending, failed};
    return device_numbers(__func__, device, LENGTH(keys), keys, out);
}

/* How many banks have all, most, some, few or none of their spare rows left. */
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, unsigned int out[5])
{
    static const char *const keys[] = {"remap.banks.all", "remap.banks.high", "remap.banks.partial", "remap.banks.low",
                                       "remap.banks.none"};
    unsigned int *places[LENGTH(keys)];
    size_t key;
    for (key = 0; key < LENGTH(keys); key++)
        places[key] = out == NULL ? NULL : &out[key];
    return device_numbers(__func__, device, LENGTH(keys), keys, places);
}

/* Aggregate and volatile parity, SEC-DED, corrected; aggregate by unit, of which nothing is known here. */
typedef struct {
    unsigned int version;
    unsigned long long counts[6], units[5];
    unsigned int exceeded;
} nvmlEccSramErrorStatus_t;

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *out)
{
    static const char *const keys[] = {"sram.aggregate.parity", "sram.aggregate.sec_ded", "sram.aggregate.corrected",
                                       "sram.volatile.parity",  "sram.volatile.sec_ded",  "sram.volatile.corrected",
                                       "sram.exceeded"};
    unsigned int values[LENGTH(keys)], *places[LENGTH(keys)];
    size_t key;
    for (key = 0; key < LENGTH(keys); key++)
        places[key] = out == NULL ? NULL : &values[key];
    TRY(device_numbers(__func__, device, LENGTH(keys), keys, places));
    if (out->version != 0x01000068)
        return ARGUMENT_VERSION_MISMATCH;
    memset(out->units, 0, sizeof out->units);
    for (key = 0; key < LENGTH(out->counts); key++)
        out->counts[key] = values[key];
    out->exceeded = values[LENGTH(out->counts)];
    return SUCCESS;
}

typedef struct { unsigned int version, channel, tpc; } nvmlRepairStatus_t;

nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t *out)
{
    static const char *const keys[] = {"repair.channel_pending", "repair.tpc_pending"};
    unsigned int channel, tpc;
    TRY(device_pair(__func__, device, keys, out == NULL ? NULL : &channel, &tpc));
    if (out->version != 0x0100000C)
        return ARGUMENT_VERSION_MISMATCH;
    *out = (nvmlRepairStatus_t){out->version, channel, tpc};
    return SUCCESS;
}

/* ---- pages, before Ampere; cause 0: several single bit errors, 1: a double bit error ---- */

NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired.pending")

/* Without a buffer, the number of pages is returned. Addresses are made up: nothing reads them but people. */
static nvmlReturn_t retired_pages(const char *call, nvmlDevice_t device, unsigned int cause, unsigned int *count,
                                  unsigned long long *addresses)
{
    char key[32];
    unsigned int pages, page, space;
    nvmlReturn_t result;
    snprintf(key, sizeof key, "retired.%u", cause);
    result = device_number(call, device, key, cause < CAUSES && count != NULL ? &pages : NULL);
    if (result != SUCCESS)
        return result;
    if (addresses == NULL && *count != 0)
        return INVALID_ARGUMENT;
    space = *count;
    *count = pages;
    if (pages > space)
        return INSUFFICIENT_SIZE;
    for (page = 0; page < pages; page++)
        addresses[page] = 0x1000ULL * (page + 1);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned int cause, unsigned int *count,
                                       unsigned long long *addresses)
{
    return retired_pages(__func__, device, cause, count, addresses);
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned int cause, unsigned int *count,
                                          unsigned long long *addresses, unsigned long long *timestamps)
{
    unsigned int page;
    nvmlReturn_t result = retired_pages(__func__, device, cause, count, addresses);
    if (result == SUCCESS && *count > 0 && timestamps == NULL)
        return INVALID_ARGUMENT;
    for (page = 0; result == SUCCESS && page < *count; page++)
        timestamps[page] = 0; /* the time is not known */
    return result;
}
