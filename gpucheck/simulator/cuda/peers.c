/* Peer access: from one context to the memory of another GPU, each direction by itself. */
#include "driver.h"

/* Whether work of this context may use the memory of a GPU. */
bool may_access(CUcontext context, int gpu)
{
    return gpu == HOST || gpu == context->gpu || context->peer[gpu];
}

static bool granted(int from, int to)
{
    const struct pair *pair = pair_of(from, to);
    machine_refresh();
    return pair != NULL && pair->access;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    GUARDED;
    TRY(check_device(device));
    TRY(check_device(peer));
    if (can == NULL)
        return INVALID_VALUE;
    *can = granted(device, peer);
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice from, CUdevice to)
{
    GUARDED;
    TRY(check_device(from));
    TRY(check_device(to));
    if (value == NULL || from == to || attribute < 1 || attribute > 5)
        return from == to ? INVALID_DEVICE : INVALID_VALUE;
    *value = 0; /* PERFORMANCE_RANK: 0 is the best */
    if (attribute == 2) /* ACCESS_SUPPORTED */
        *value = granted(from, to);
    else if (attribute == 3) /* NATIVE_ATOMIC_SUPPORTED */
        *value = granted(from, to) && pair_of(from, to)->nvlink;
    else if (attribute == 1)
        *value = !pair_of(from, to)->nvlink;
    return SUCCESS;
}

static int peers_by_pcie(CUcontext context)
{
    int gpu, count = 0;
    for (gpu = 0; gpu < gpu_count; gpu++)
        count += context->peer[gpu] && !pair_of(context->gpu, gpu)->nvlink;
    return count;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    GUARDED;
    CUcontext context;
    TRY(enter(&context));
    TRY(check_context(peer));
    if (flags != 0)
        return INVALID_VALUE;
    if (peer == context)
        return INVALID_CONTEXT;
    if (!granted(context->gpu, peer->gpu))
        return PEER_ACCESS_UNSUPPORTED;
    if (context->peer[peer->gpu])
        return PEER_ACCESS_ALREADY_ENABLED;
    if (!pair_of(context->gpu, peer->gpu)->nvlink && peers_by_pcie(context) == MOST_PEERS)
        return TOO_MANY_PEERS;
    context->peer[peer->gpu] = true;
    return SUCCESS;
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    GUARDED;
    CUcontext context;
    TRY(enter(&context));
    TRY(check_context(peer));
    if (peer->gpu == context->gpu || !context->peer[peer->gpu])
        return PEER_ACCESS_NOT_ENABLED;
    wait_for_context(context);
    context->peer[peer->gpu] = false;
    return SUCCESS;
}
