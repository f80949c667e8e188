/* What a GPU is, and how it feels: names, modes, clocks, temperatures, power. Mostly one value of the table a function. */
#include <time.h>

#include "simulator.h"

nvmlReturn_t copy_text(char *out, unsigned int length, const char *value)
{
    if (out == NULL)
        return INVALID_ARGUMENT;
    if (strlen(value) >= length)
        return INSUFFICIENT_SIZE;
    write_text(out, length, value);
    return SUCCESS;
}

nvmlReturn_t device_wide(const char *call, nvmlDevice_t device, const char *key, unsigned long long *out)
{
    struct subject subject;
    TRY(enter_device(call, device, &subject));
    return out == NULL ? INVALID_ARGUMENT : find_number(out, "%s.%s", subject.prefix, key);
}

/* Several values from one table: a fault that is switched meanwhile cannot tear them. All are written, or none. */
nvmlReturn_t device_numbers(const char *call, nvmlDevice_t device, size_t count, const char *const *keys,
                            unsigned int *const *out)
{
    unsigned long long values[MAX_NUMBERS];
    struct subject subject;
    size_t index;
    nvmlReturn_t result = enter_device(call, device, &subject);
    for (index = 0; result == SUCCESS && index < count; index++)
        result = out[index] == NULL ? INVALID_ARGUMENT : SUCCESS;
    for (index = 0; result == SUCCESS && index < count; index++)
        result = find_number(&values[index], "%s.%s", subject.prefix, keys[index]);
    for (index = 0; result == SUCCESS && index < count; index++)
        *out[index] = (unsigned int)values[index];
    return result;
}

nvmlReturn_t device_number(const char *call, nvmlDevice_t device, const char *key, unsigned int *out)
{
    return device_numbers(call, device, 1, &key, &out);
}

nvmlReturn_t device_pair(const char *call, nvmlDevice_t device, const char *const keys[2], unsigned int *first,
                         unsigned int *second)
{
    unsigned int *const out[] = {first, second};
    return device_numbers(call, device, LENGTH(out), keys, out);
}

nvmlReturn_t device_text(const char *call, nvmlDevice_t device, const char *key, char *out, unsigned int length)
{
    const char *value;
    struct subject subject;
    TRY(enter_device(call, device, &subject));
    TRY(out == NULL ? INVALID_ARGUMENT : find_text(&value, "%s.%s", subject.prefix, key));
    return copy_text(out, length, value);
}

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetBoardPartNumber, "part_number")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom.image")

/* The caller states no length: NVML_GSP_FIRMWARE_VERSION_BUF_SIZE of nvml.h. */
nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
    return device_text(__func__, device, "gsp.version", version, 0x40);
}

PAIR(nvmlDeviceGetGspFirmwareMode, "gsp.enabled", "gsp.default")
NUMBER(nvmlDeviceGetIndex, "index")
NUMBER(nvmlDeviceGetMinorNumber, "minor")
NUMBER(nvmlDeviceGetModuleId, "module")
NUMBER(nvmlDeviceGetBoardId, "board")
NUMBER(nvmlDeviceGetMultiGpuBoard, "multi_gpu_board")
NUMBER(nvmlDeviceGetBrand, "brand")
NUMBER(nvmlDeviceGetArchitecture, "architecture")
NUMBER(nvmlDeviceGetVirtualizationMode, "virtualization")
NUMBER(nvmlDeviceGetNumaNodeId, "memory_numa_node")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetDisplayMode, "display_mode")
NUMBER(nvmlDeviceGetDisplayActive, "display_active")
NUMBER(nvmlDeviceGetPerformanceState, "performance_state")
NUMBER(nvmlDeviceGetPowerState, "performance_state")
NUMBER(nvmlDeviceGetFanSpeed, "fan_speed")
NUMBER(nvmlDeviceGetNumFans, "fans")
NUMBER(nvmlDeviceGetPowerUsage, "power.usage_mw")
NUMBER(nvmlDeviceGetPowerManagementMode, "power.managed")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power.limit_mw")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power.default_limit_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power.enforced_limit_mw")
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power.min_limit_mw", "power.max_limit_mw")
WIDE(nvmlDeviceGetTotalEnergyConsumption, "energy_mj")
WIDE(nvmlDeviceGetCurrentClocksEventReasons, "clocks_event_reasons")
WIDE(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks_event_reasons")
WIDE(nvmlDeviceGetSupportedClocksEventReasons, "supported_clocks_event_reasons")
WIDE(nvmlDeviceGetSupportedClocksThrottleReasons, "supported_clocks_event_reasons")
WIDE(nvmlDeviceGetSupportedEventTypes, "event_types")
PAIR(nvmlDeviceGetCudaComputeCapability, "compute.major", "compute.minor")
PAIR(nvmlDeviceGetDriverModel, "driver_model.current", "driver_model.pending")
PAIR(nvmlDeviceGetDriverModel_v2, "driver_model.current", "driver_model.pending")
PAIR(nvmlDeviceGetMigMode, "mig.current", "mig.pending")
PAIR(nvmlDeviceGetEncoderUtilization, "utilization.encoder", "utilization.sampling_us")
PAIR(nvmlDeviceGetDecoderUtilization, "utilization.decoder", "utilization.sampling_us")
CHOICE(nvmlDeviceGetClockInfo, "clock", 4)
CHOICE(nvmlDeviceGetMaxClockInfo, "max_clock", 4)
CHOICE(nvmlDeviceGetApplicationsClock, "application_clock", 4)
CHOICE(nvmlDeviceGetDefaultApplicationsClock, "default_application_clock", 4)
CHOICE(nvmlDeviceGetTemperature, "temperature", 1)
CHOICE(nvmlDeviceGetTemperatureThreshold, "threshold", 8)
VERSIONED(nvmlDeviceGetMarginTemperature, "temperature.margin", 0x01000008)
VERSIONED(nvmlDeviceGetAddressingMode, "addressing_mode", 0x01000008)

/* (device, domain, clock id): now, application target, application default, the highest that boost may reach */
nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned int domain, unsigned int id, unsigned int *out)
{
    static const char *const kinds[] = {"clock", "clock.target", "clock.default", "max_clock"};
    char key[32];
    snprintf(key, sizeof key, "%s.%u", kinds[id % LENGTH(kinds)], domain);
    return device_number(__func__, device, key, domain < 4 && id < LENGTH(kinds) ? out : NULL);
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *out)
{
    static const char *const keys[] = {"fans", "fan_speed"};
    unsigned int fans, speed;
    TRY(device_pair(__func__, device, keys, out == NULL ? NULL : &fans, &speed));
    if (fan >= fans)
        return INVALID_ARGUMENT;
    *out = speed;
    return SUCCESS;
}

typedef struct { unsigned int version, sensor; int temperature; } nvmlTemperature_t;

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out)
{
    unsigned int celsius;
    TRY(device_number(__func__, device, "temperature.0", out == NULL || out->sensor != 0 ? NULL : &celsius));
    if (out->version != 0x0100000C)
        return ARGUMENT_VERSION_MISMATCH;
    out->temperature = (int)celsius;
    return SUCCESS;
}

typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    static const char *const keys[] = {"utilization.gpu", "utilization.memory"};
    return device_pair(__func__, device, keys, out == NULL ? NULL : &out->gpu, out == NULL ? NULL : &out->memory);
}

typedef struct {
    unsigned int code, licensed;
    char license[128], product[128];
    unsigned int enabled, expiry[4];
} nvmlGridLicensableFeature_t;
typedef struct { int supported; unsigned int count; nvmlGridLicensableFeature_t features[3]; } nvmlGridLicensableFeatures_t;

/* Of a virtual GPU: one feature, which is licensed or not. */
nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, nvmlGridLicensableFeatures_t *out)
{
    static const char *const keys[] = {"license.supported", "license.state"};
    unsigned int supported, licensed;
    TRY(device_pair(__func__, device, keys, out == NULL ? NULL : &supported, &licensed));
    *out = (nvmlGridLicensableFeatures_t){(int)supported, 1, {{.licensed = licensed, .enabled = 1}}};
    return SUCCESS;
}

typedef struct {
    unsigned int version;
    char ibGuid[16], chassis[16];
    unsigned char slot, tray, host, peer, module;
} nvmlPlatformInfo_t;

/* Where in its rack the GPU is. */
nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *out)
{
    struct subject subject;
    const char *chassis;
    TRY(enter_device(__func__, device, &subject));
    TRY(out == NULL ? INVALID_ARGUMENT : find_text(&chassis, "%s.rack.chassis", subject.prefix));
    if (out->version != 0x0200002C)
        return ARGUMENT_VERSION_MISMATCH;
    *out = (nvmlPlatformInfo_t){
        .version = out->version,
        .slot = (unsigned char)number_or(0, "%s.rack.slot", subject.prefix),
        .tray = (unsigned char)number_or(0, "%s.rack.tray", subject.prefix),
        .host = (unsigned char)number_or(0, "%s.rack.host", subject.prefix),
        .module = (unsigned char)number_or(0, "%s.rack.module", subject.prefix),
    };
    memcpy(out->chassis, chassis, strnlen(chassis, sizeof out->chassis));
    return SUCCESS;
}

typedef struct { unsigned long long reference, violation; } nvmlViolationTime_t;

/* Since the driver was loaded: microseconds now, nanoseconds spent under that limit. */
nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned int policy, nvmlViolationTime_t *out)
{
    char key[32];
    unsigned long long violation;
    struct timespec now;
    nvmlReturn_t result;
    snprintf(key, sizeof key, "violation.%u", policy);
    result = device_wide(__func__, device, key, out == NULL || policy > 11 ? NULL : &violation);
    if (result != SUCCESS)
        return result;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (nvmlViolationTime_t){(unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000,
                                 violation};
    return SUCCESS;
}
