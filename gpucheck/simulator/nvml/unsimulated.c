/* NVML functions that are not simulated: every row of exports.txt without another definition returns an error. */
#include <unistd.h>

#include "simulator.h"

static nvmlReturn_t refuse(const char *call, nvmlReturn_t refusal)
{
    TRY(enter(call));
    return refusal;
}

static nvmlReturn_t refuse_device(const char *call, nvmlDevice_t device, nvmlReturn_t refusal)
{
    struct subject subject;
    TRY(enter_device(call, device, &subject));
    return refusal;
}

static nvmlReturn_t as_root(void)
{
    return geteuid() == 0 ? NOT_SUPPORTED : NO_PERMISSION;
}

/* Callers pass more arguments than these take: nothing but the first is looked at. */
#define DEVICE(function)                                                                                               \
    nvmlReturn_t function(nvmlDevice_t device) { return refuse_device(#function, device, NOT_SUPPORTED); }
#define CHANGE(function)                                                                                               \
    nvmlReturn_t function(nvmlDevice_t device) { return refuse_device(#function, device, as_root()); }
#define HOST(function)                                                                                                 \
    nvmlReturn_t function(void) { return refuse(#function, NOT_SUPPORTED); }
#define CHANGE_HOST(function)                                                                                          \
    nvmlReturn_t function(void) { return refuse(#function, as_root()); }
#define OBJECT(function)                                                                                               \
    nvmlReturn_t function(void) { return refuse(#function, INVALID_ARGUMENT); }

#include "unsimulated.inc"
