/* How fast a copy is and which links it occupies. The numbers are those of cuda.txt. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* Copies inside a GPU are not modelled: a round number. The setup is the cost of an empty copy in a full queue. */
#define LOCAL_BYTES_S 500e9
#define SETUP_S 1e-6
#define LOCAL_LATENCY_S 1e-6
#define HOST_LATENCY_S 2e-6
#define STAGED_LATENCY_S 14e-6
#define LOAD_LATENCY_S 0.5e-6 /* of a kernel, from its own GPU's memory */

bool copies_are_remembered;

static struct pair pairs[MAX_GPUS][MAX_GPUS];
static char **names; /* of links; a link is its place here */
static int name_count, name_room;

static int link_named(const char *name)
{
    int number;
    for (number = 0; number < name_count; number++)
        if (strcmp(names[number], name) == 0)
            return number;
    if (name_count == name_room) {
        char **more = realloc(names, sizeof *names * (size_t)(name_room + 256));
        if (more == NULL)
            abort();
        names = more;
        name_room += 256;
    }
    if ((names[name_count] = strdup(name)) == NULL)
        abort();
    return name_count++;
}

/* The links of a list, each name behind `direction`. */
static int link_list(const char *text, const char *direction, int *out, int most)
{
    char word[128];
    int count = 0, taken;
    while (text != NULL && count < most && sscanf(text, " %96s%n", word, &taken) == 1) {
        char name[160];
        snprintf(name, sizeof name, "%s%s", direction, word);
        out[count++] = link_named(name);
        text += taken;
    }
    return count;
}

static enum damage damage_named(const char *name)
{
    static const char *const known[] = {"", "untouched", "zeros", "stale", "other-pair", "shifted", "bit-flip"};
    size_t number;
    for (number = 1; name != NULL && number < LENGTH(known); number++)
        if (strcmp(name, known[number]) == 0)
            return (enum damage)number;
    return WHOLE;
}

static bool granted(int from, int to)
{
    return machine_number(1, "gpu.%d.p2p.%d.0", from, to) == 0 && machine_number(1, "gpu.%d.p2p.%d.1", from, to) == 0;
}

static void read_pair(struct pair *out, int from, int to)
{
    char prefix[32];
    snprintf(prefix, sizeof prefix, "pair.%d.%d.", from, to);
    *out = (struct pair){
        .bytes_s = cuda_number(1, "%sgb_s", prefix) * 1e9,
        .staged_bytes_s = cuda_number(1, "%sstaged_gb_s", prefix) * 1e9,
        .latency_s = cuda_number(0, "%slatency_us", prefix) * 1e-6,
        .duplex = cuda_number(1, "%sduplex", prefix),
        .damage = damage_named(cuda_text("%sdamage", prefix)),
        .stuck = cuda_number(0, "%sstuck", prefix) != 0,
        .error = (CUresult)cuda_number(SUCCESS, "%serror", prefix),
        .access = granted(from, to),
        .nvlink = machine_number(1, "gpu.%d.p2p.%d.2", from, to) == 0,
    };
    out->link_count = link_list(cuda_text("%slinks", prefix), "", out->links, MAX_LINKS);
}

/* False where the tables do not describe the GPUs. */
bool routes_read(void)
{
    bool late = false;
    int from, to;
    for (from = 0; from < gpu_count; from++) {
        struct gpu *gpu = &gpus[from];
        const char *way = cuda_text("host.%d.links", gpu->number);
        gpu->host_bytes_s = cuda_number(1, "host.%d.gb_s", gpu->number) * 1e9;
        gpu->host_duplex = cuda_number(1, "host.%d.duplex", gpu->number);
        if (gpu->host_bytes_s <= 0)
            return false;
        gpu->link_count = link_list(way, "up:", gpu->up, MAX_LINKS);
        link_list(way, "down:", gpu->down, MAX_LINKS);
        for (to = 0; to < gpu_count; to++)
            if (to != from) {
                read_pair(&pairs[from][to], gpu->number, gpus[to].number);
                late = late || pairs[from][to].damage == STALE || pairs[from][to].damage == OTHER_PAIR;
            }
    }
    copies_are_remembered = late;
    return true;
}

/* NULL where both are one GPU, or one of them is the host. */
struct pair *pair_of(int from, int to)
{
    return from == to || from < 0 || to < 0 ? NULL : &pairs[from][to];
}

static void occupy(struct route *route, const int *links, int count)
{
    int place;
    for (place = 0; place < count && route->link_count < (int)LENGTH(route->links); place++)
        route->links[route->link_count++] = links[place];
}

static int engine(const char *direction, int gpu)
{
    char name[32];
    snprintf(name, sizeof name, "%s:%d", direction, gpu);
    return link_named(name);
}

/* A GPU's copy engines take one copy out and one in, so each is a link as well. */
static void occupy_engine(struct route *route, bool out, int gpu)
{
    const int link = engine(out ? "out" : "in", gpu);
    occupy(route, &link, 1);
    route->opposite[route->opposite_count++] = engine(out ? "in" : "out", gpu);
}

struct route route_of(const struct operation *operation)
{
    struct route route = {.bytes_s = LOCAL_BYTES_S, .setup_s = SETUP_S, .latency_s = LOCAL_LATENCY_S, .duplex = 1};
    const int from = operation->from, to = operation->to;
    const struct pair *pair = pair_of(from, to);
    if (from != HOST)
        occupy_engine(&route, true, from);
    if (to != HOST)
        occupy_engine(&route, false, to);
    if (from == to)
        return route;
    if (pair != NULL && operation->direct) {
        route.bytes_s = pair->bytes_s;
        route.latency_s = pair->latency_s;
        route.duplex = pair->duplex;
        route.pair = pair;
        occupy(&route, pair->links, pair->link_count);
        return route;
    }
    route.bytes_s = pair != NULL ? pair->staged_bytes_s : gpus[from != HOST ? from : to].host_bytes_s;
    route.duplex = gpus[from != HOST ? from : to].host_duplex;
    route.latency_s = pair != NULL ? STAGED_LATENCY_S : HOST_LATENCY_S;
    if (from != HOST)
        occupy(&route, gpus[from].up, gpus[from].link_count);
    if (to != HOST)
        occupy(&route, gpus[to].down, gpus[to].link_count);
    return route;
}

/* One load of a kernel that waits for the one before. Of a peer's memory it takes as long as a small copy. */
double chase_seconds(int gpu, int owner)
{
    const struct pair *pair = pair_of(owner, gpu);
    return pair != NULL ? pair->latency_s : owner == HOST ? HOST_LATENCY_S : LOAD_LATENCY_S;
}
