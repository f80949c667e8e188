/*
 * nvmlDeviceGetFieldValues: a number by its field id, most of them the same values that have a call of their own.
 *
 * Any other field is in machine.txt as `<gpu>.field.<id>`, or `.field.<id>.<scope>` for what exists once per link;
 * a trailing `ull` is the wide type.
 */
#include <limits.h>
#include <stdint.h>
#include <time.h>

#include "simulator.h"

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3, SIGNED_INT = 5 };

typedef struct {
    unsigned int fieldId, scopeId;
    int64_t timestamp, latencyUsec;
    unsigned int valueType, nvmlReturn;
    union { unsigned int ui; unsigned long long ull; } value;
} nvmlFieldValue_t;

static const struct { unsigned int id, type; const char *key; } of_gpu[] = {
    {1, UNSIGNED_INT, "ecc.current"},
    {2, UNSIGNED_INT, "ecc.pending"},
    {3, UNSIGNED_LONG_LONG, "ecc.errors.0.0"},
    {4, UNSIGNED_LONG_LONG, "ecc.errors.1.0"},
    {5, UNSIGNED_LONG_LONG, "ecc.errors.0.1"},
    {6, UNSIGNED_LONG_LONG, "ecc.errors.1.1"},
    {29, UNSIGNED_INT, "retired.0"},
    {30, UNSIGNED_INT, "retired.1"},
    {31, UNSIGNED_INT, "retired.pending"},
    {82, UNSIGNED_INT, "temperature.memory"},
    {83, UNSIGNED_LONG_LONG, "energy_mj"},
    {90, UNSIGNED_INT, "nvlink.speed"},
    {91, UNSIGNED_INT, "nvlink.count"},
    {94, UNSIGNED_INT, "pcie.replays"},
    {95, UNSIGNED_INT, "pcie.rollovers"},
    {142, UNSIGNED_INT, "remap.correctable"},
    {143, UNSIGNED_INT, "remap.uncorrectable"},
    {144, UNSIGNED_INT, "remap.pending"},
    {145, UNSIGNED_INT, "remap.failed"},
    {147, UNSIGNED_INT, "nvlink.switch_links"},
    {185, UNSIGNED_INT, "power.usage_mw"},
    {186, UNSIGNED_INT, "power.usage_mw"},
    {187, UNSIGNED_INT, "power.min_limit_mw"},
    {188, UNSIGNED_INT, "power.max_limit_mw"},
    {189, UNSIGNED_INT, "power.default_limit_mw"},
    {190, UNSIGNED_INT, "power.enforced_limit_mw"},
    {192, UNSIGNED_INT, "power.limit_mw"},
    {194, SIGNED_INT, "temperature.slowdown_margin"},
    {230, UNSIGNED_INT, "recovery_action"},
};

/* Fields first to last are those of as many links, the first of them being `link`. */
static const struct { unsigned int first, last, link, type; const char *key; } of_links[] = {
    {32, 37, 0, UNSIGNED_LONG_LONG, "errors.2"},   {96, 101, 6, UNSIGNED_LONG_LONG, "errors.2"},
    {39, 44, 0, UNSIGNED_LONG_LONG, "errors.3"},   {102, 107, 6, UNSIGNED_LONG_LONG, "errors.3"},
    {46, 51, 0, UNSIGNED_LONG_LONG, "errors.0"},   {108, 113, 6, UNSIGNED_LONG_LONG, "errors.0"},
    {53, 58, 0, UNSIGNED_LONG_LONG, "errors.1"},   {114, 119, 6, UNSIGNED_LONG_LONG, "errors.1"},
    {148, 159, 0, UNSIGNED_LONG_LONG, "errors.4"}, {84, 89, 0, UNSIGNED_INT, "speed"},
    {132, 137, 6, UNSIGNED_INT, "speed"},
};

/* Of the link that the scope names. */
static const struct { unsigned int id, type; const char *key; } of_scope[] = {
    {146, UNSIGNED_INT, "remote.link"},
    {161, UNSIGNED_LONG_LONG, "errors.0"},
    {162, UNSIGNED_LONG_LONG, "errors.1"},
    {163, UNSIGNED_LONG_LONG, "errors.2"},
    {164, UNSIGNED_INT, "speed"},
    {165, UNSIGNED_INT, "active"},
    {166, UNSIGNED_INT, "version"},
};

static const struct { unsigned int id; const char *key; } sums[] = {
    {38, "errors.2"}, {45, "errors.3"}, {52, "errors.0"}, {59, "errors.1"}, {160, "errors.4"},
};

static nvmlReturn_t link_value(const struct subject *subject, unsigned int link, const char *key, unsigned long long *out)
{
    unsigned long long links;
    TRY(find_number(&links, "%s.nvlink.count", subject->prefix));
    if (link >= links)
        return INVALID_ARGUMENT;
    return find_number(out, "%s.nvlink.%u.%s", subject->prefix, link, key);
}

static nvmlReturn_t sum(const struct subject *subject, const char *key, unsigned long long *out)
{
    unsigned long long one;
    unsigned int link;
    nvmlReturn_t result = link_value(subject, 0, key, out);
    for (link = 1; result == SUCCESS && link_value(subject, link, key, &one) == SUCCESS; link++)
        *out += one;
    return result;
}

static nvmlReturn_t known(const struct subject *subject, nvmlFieldValue_t *out)
{
    const unsigned int id = out->fieldId;
    size_t row;
    for (row = 0; row < LENGTH(of_gpu); row++)
        if (of_gpu[row].id == id) {
            out->valueType = of_gpu[row].type;
            return find_number(&out->value.ull, "%s.%s", subject->prefix, of_gpu[row].key);
        }
    for (row = 0; row < LENGTH(of_links); row++)
        if (of_links[row].first <= id && id <= of_links[row].last) {
            out->valueType = of_links[row].type;
            return link_value(subject, of_links[row].link + id - of_links[row].first, of_links[row].key, &out->value.ull);
        }
    for (row = 0; row < LENGTH(of_scope); row++)
        if (of_scope[row].id == id) {
            out->valueType = of_scope[row].type;
            return link_value(subject, out->scopeId, of_scope[row].key, &out->value.ull);
        }
    for (row = 0; row < LENGTH(sums); row++)
        if (sums[row].id == id) {
            out->valueType = UNSIGNED_LONG_LONG;
            return sum(subject, sums[row].key, &out->value.ull);
        }
    return NOT_FOUND;
}

static nvmlReturn_t field(const struct subject *subject, nvmlFieldValue_t *out)
{
    const char *value, *rest;
    char name[32];
    nvmlReturn_t result;
    snprintf(name, sizeof name, "field.%u", out->fieldId);
    if ((result = forced(name, NO_GPU)) != SUCCESS || (result = forced(name, subject->gpu)) != SUCCESS)
        return result;
    result = find_text(&value, "%s.field.%u.%u", subject->prefix, out->fieldId, out->scopeId);
    if (result == NOT_SUPPORTED)
        result = find_text(&value, "%s.field.%u", subject->prefix, out->fieldId);
    if (result == SUCCESS)
        result = parse_number(value, &out->value.ull, &rest);
    else if (result == NOT_SUPPORTED && (result = known(subject, out)) != NOT_FOUND)
        return result;
    if (result == SUCCESS)
        out->valueType = strcmp(rest, "ull") == 0 ? UNSIGNED_LONG_LONG : UNSIGNED_INT;
    return result == NOT_FOUND ? NOT_SUPPORTED : result;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    struct timespec now;
    struct subject subject;
    int index;
    TRY(enter_device(__func__, device, &subject));
    if (values == NULL || count < 1)
        return INVALID_ARGUMENT;
    clock_gettime(CLOCK_REALTIME, &now);
    for (index = 0; index < count; index++) {
        values[index].timestamp = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
        values[index].latencyUsec = 0;
        values[index].nvmlReturn = field(&subject, &values[index]);
        if (values[index].nvmlReturn == SUCCESS && values[index].valueType == UNSIGNED_INT)
            values[index].value.ull = values[index].value.ull & UINT_MAX;
    }
    return SUCCESS;
}
