/* Contexts: the primary one of each GPU, and which of them a thread works in. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "driver.h"

#define EXCLUSIVE_PROCESS 3 /* CUcomputemode */
#define PROHIBITED 2

CUcontext contexts;
static struct context primary[MAX_GPUS];
static int claims[MAX_GPUS]; /* sockets that hold an exclusive GPU for this process, 0 for none */
static _Thread_local CUcontext current;

CUcontext current_context(void)
{
    return current;
}

CUresult check_context(CUcontext context)
{
    CUcontext one;
    for (one = contexts; one != NULL; one = one->next)
        if (one == context)
            return one->alive ? SUCCESS : CONTEXT_IS_DESTROYED;
    return INVALID_CONTEXT;
}

/* An abstract socket's name is this user's and machine's alone, and free again when the process ends however it does. */
static CUresult claim(int gpu)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length, made;
    if (claims[gpu] != 0)
        return SUCCESS;
    length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "gpucheck-cuda/%s/%.40s", strrchr(machine_directory(), '/'),
                      gpus[gpu].uuid);
    if ((made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
        return SUCCESS;
    if (bind(made, (struct sockaddr *)&name,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) != 0) {
        close(made);
        return DEVICE_UNAVAILABLE;
    }
    claims[gpu] = made;
    return SUCCESS;
}

/* Whether this process may compute on the GPU. */
static CUresult admit(int gpu)
{
    machine_refresh();
    gpus[gpu].compute_mode = (int)machine_number(0, "gpu.%d.compute_mode", gpus[gpu].number);
    if (machine_lost(gpu) || gpus[gpu].compute_mode == PROHIBITED)
        return DEVICE_UNAVAILABLE;
    if (gpus[gpu].compute_mode != EXCLUSIVE_PROCESS)
        return SUCCESS;
    if (machine_number(0, "%s.process.compute.count", gpus[gpu].prefix) > 0)
        return DEVICE_UNAVAILABLE;
    return claim(gpu);
}

static CUresult begin(CUcontext context, int gpu)
{
    CUcontext one;
    TRY(admit(gpu));
    for (one = contexts; one != NULL && one != context; one = one->next)
        ;
    if (one == NULL) {
        context->next = contexts;
        contexts = context;
    }
    context->gpu = gpu;
    context->alive = true;
    context->sticky = SUCCESS;
    memset(context->peer, 0, sizeof context->peer);
    if (context->legacy == NULL)
        context->legacy = new_stream(context, 0);
    return SUCCESS;
}

/* What is left of it: nothing but the address, which a caller may still hold. */
static void end(CUcontext context)
{
    CUcontext one;
    drop_work(context);
    storage_release(context);
    context->alive = false;
    context->holders = 0;
    for (one = contexts; one != NULL && !(one->alive && one->gpu == context->gpu); one = one->next)
        ;
    if (one == NULL && claims[context->gpu] != 0) {
        close(claims[context->gpu]);
        claims[context->gpu] = 0;
    }
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    GUARDED;
    CUresult result = check_device(device);
    if (result == SUCCESS && out == NULL)
        return INVALID_VALUE;
    if (result == SUCCESS)
        result = stated_error("cuDevicePrimaryCtxRetain");
    if (result == SUCCESS && !primary[device].alive)
        result = begin(&primary[device], device);
    if (result != SUCCESS)
        return result;
    primary[device].holders++;
    *out = &primary[device];
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    GUARDED;
    TRY(check_device(device));
    if (primary[device].holders == 0)
        return INVALID_CONTEXT;
    if (--primary[device].holders == 0)
        end(&primary[device]);
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    GUARDED;
    const CUresult result = check_device(device);
    unsigned int holders;
    if (result != SUCCESS || !primary[device].alive)
        return result;
    holders = primary[device].holders;
    end(&primary[device]);
    primary[device].holders = holders;
    return holders > 0 ? begin(&primary[device], device) : SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    GUARDED;
    if (initialized() != SUCCESS)
        return NOT_INITIALIZED;
    if (context != NULL)
        TRY(check_context(context));
    current = context;
    return SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *out)
{
    GUARDED;
    if (initialized() != SUCCESS || out == NULL)
        return out == NULL ? INVALID_VALUE : NOT_INITIALIZED;
    *out = current_context();
    return SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
    GUARDED;
    CUcontext context;
    TRY(enter(&context));
    return wait_for_context(context);
}
