/*
 * Init and shutdown, and what every call passes through: is the library in use, is this call to hang, crash or fail?
 * Also what a text is replaced by, and how long a GPU takes to initialise.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "simulator.h"

#define DEFAULT_MACHINE "/run/gpucheck-simulator"

_Thread_local const struct table *view;

static _Thread_local struct { const char *call; int gpu; } now; /* this thread's call in progress */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int references;
static unsigned char awake[MAX_GPUS];
static char machine[PATH_MAX - 64], version[64] = "0.0";
static const struct table *latest;

const char *own_version(void)
{
    return version;
}

/* The library's version is the one in its file name (libnvidia-ml.so.580.178.04), as with the real library. */
static void learn_own_version(void)
{
    static const char stem[] = "libnvidia-ml.so.";
    char path[PATH_MAX];
    const char *name;
    Dl_info self;
    if (dladdr((const void *)stem, &self) == 0 || realpath(self.dli_fname, path) == NULL)
        return;
    name = strrchr(path, '/') + 1;
    /* libnvidia-ml.so.1 is the soname, no version */
    if (strncmp(name, stem, sizeof stem - 1) == 0 && strchr(name + sizeof stem - 1, '.') != NULL)
        snprintf(version, sizeof version, "%s", name + sizeof stem - 1);
}

static void refresh(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/machine.txt", machine);
    latest = table_refresh(path, latest);
}

/* A wait that only SIGKILL ends and that the kernel shows as state D: the parent of a vfork() until its child exits. */
static void wait_in_the_kernel(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pid_t parent = getpid();
    if (vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            pause();
        _exit(0);
    }
}

static nvmlReturn_t outcome_of(const char *outcome)
{
    while (strcmp(outcome, "hang") == 0)
        pause();
    while (strcmp(outcome, "hang-uninterruptible") == 0)
        wait_in_the_kernel();
    if (strcmp(outcome, "crash") == 0)
        abort();
    return (nvmlReturn_t)strtoul(outcome, NULL, 10);
}

/* The value of <prefix><call>, or of the call without the version at its end: nvmlDeviceGetCount stands for its _v2 too. */
static const char *by_name(const char *prefix, const char *call)
{
    char name[128];
    const char *found;
    size_t length = strlen(call);
    snprintf(name, sizeof name, "%s%s", prefix, call);
    if ((found = table_find(view, name)) != NULL || length <= 3 || strncmp(call + length - 3, "_v", 2) != 0)
        return found;
    snprintf(name, sizeof name, "%s%.*s", prefix, (int)(length - 3), call);
    return table_find(view, name);
}

/* What machine.txt orders for a call, of `kind` call or text, and for this GPU or (NO_GPU) for whatever it is about. */
static const char *ordered(const char *kind, const char *call, int gpu)
{
    char prefix[32];
    if (gpu == NO_GPU)
        snprintf(prefix, sizeof prefix, "%s.", kind);
    else
        snprintf(prefix, sizeof prefix, "gpu.%d.%s.", gpu, kind);
    return by_name(prefix, call);
}

nvmlReturn_t forced(const char *call, int gpu)
{
    const char *outcome = ordered("call", call, gpu);
    return outcome == NULL ? SUCCESS : outcome_of(outcome);
}

nvmlReturn_t enter(const char *call)
{
    pthread_mutex_lock(&lock);
    if (references > 0)
        refresh();
    view = references > 0 ? latest : NULL;
    pthread_mutex_unlock(&lock);
    now.call = call;
    now.gpu = NO_GPU;
    return view == NULL ? UNINITIALIZED : forced(call, NO_GPU);
}

/* The call in progress turns out to be about this GPU. */
nvmlReturn_t enter_gpu(int gpu)
{
    now.gpu = gpu;
    return forced(now.call, gpu);
}

/* A text into a buffer that has room for it, or what is ordered in its place. */
void write_text(char *out, size_t length, const char *value)
{
    const char *kind = now.gpu == NO_GPU ? NULL : ordered("text", now.call, now.gpu);
    snprintf(out, length, "%s", value);
    if (kind == NULL && (kind = ordered("text", now.call, NO_GPU)) == NULL)
        return;
    if (strcmp(kind, "empty") == 0)
        *out = '\0';
    else if (strcmp(kind, "latin1") == 0 && length > 1 && *out != '\0')
        *out = '\xE9'; /* e with an acute accent, which no UTF-8 text has before a plain letter */
    else if (strcmp(kind, "garbage") == 0)
        for (size_t place = 0; place + 1 < length; place++)
            out[place] = place % 2 == 0 ? '\xFF' : '\x01';
}

/* The first handle of a GPU initialises it. */
void wake(int gpu)
{
    const char *seconds = table_find(view, "init.seconds");
    double wanted = seconds == NULL ? 0 : strtod(seconds, NULL);
    struct timespec rest = {(time_t)wanted, (long)((wanted - (double)(time_t)wanted) * 1e9)};
    if (wanted <= 0 || __atomic_exchange_n(&awake[gpu], 1, __ATOMIC_RELAXED))
        return;
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
        ;
}

static nvmlReturn_t check_driver(void)
{
    char path[PATH_MAX], *loaded;
    struct stat seen;
    nvmlReturn_t result;
    learn_own_version();
    snprintf(path, sizeof path, "%s/root/dev/dxg", machine);
    if (access(path, F_OK) == 0) /* WSL: the module is that of Windows */
        return SUCCESS;
    snprintf(path, sizeof path, "%s/root/sys/module/nvidia/version", machine);
    if ((loaded = slurp(path, &seen)) == NULL)
        return DRIVER_NOT_LOADED;
    /* sysfs files claim 4096 bytes and hold fewer: trim() ends the text where the content ends */
    result = strcmp(trim(loaded), version) == 0 ? SUCCESS : LIB_RM_VERSION_MISMATCH;
    free(loaded);
    return result;
}

static nvmlReturn_t attach(void)
{
    const char *chosen = getenv("GPUCHECK_SIMULATOR");
    nvmlReturn_t result;
    if (chosen == NULL || *chosen == '\0')
        chosen = access(DEFAULT_MACHINE "/simulation.json", F_OK) == 0 ? DEFAULT_MACHINE : "";
    if (snprintf(machine, sizeof machine, "%s", chosen) >= (int)sizeof machine || *machine == '\0')
        return DRIVER_NOT_LOADED;
    if ((result = check_driver()) != SUCCESS)
        return result;
    latest = NULL;
    refresh();
    view = latest;
    return latest == NULL ? UNKNOWN : SUCCESS;
}

/* `nvmlInit` orders it for each of the three. */
static nvmlReturn_t init(const char *call)
{
    nvmlReturn_t result = SUCCESS;
    pthread_mutex_lock(&lock);
    if (references == 0 && (result = attach()) == SUCCESS && (result = forced(call, NO_GPU)) == SUCCESS)
        result = forced("nvmlInit", NO_GPU);
    references += result == SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return init(__func__);
}

nvmlReturn_t nvmlInit_v2(void) { return init(__func__); }
nvmlReturn_t nvmlInit(void) { return init(__func__); }

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = enter(__func__);
    if (result != SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    result = references > 0 ? SUCCESS : UNINITIALIZED;
    references -= references > 0;
    if (references == 0)
        memset(awake, 0, sizeof awake);
    pthread_mutex_unlock(&lock);
    return result;
}
