/* Init and shutdown, and what every call passes through: is the library in use, is this call to hang, crash or refuse? */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "simulator.h"

#define DEFAULT_MACHINE "/run/gpucheck-simulator"

_Thread_local const struct table *view;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int references;
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

/* A wait that only SIGKILL ends and that the kernel shows as state D: the parent of a vfork() until its child is gone. */
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

/* By its full name, or without the version at its end: nvmlDeviceGetCount stands for nvmlDeviceGetCount_v2 too. */
static nvmlReturn_t forced(const char *call)
{
    char name[96];
    const char *outcome;
    size_t length = strlen(call);
    snprintf(name, sizeof name, "call.%s", call);
    if ((outcome = table_find(view, name)) != NULL)
        return outcome_of(outcome);
    if (length > 3 && length < sizeof name - 5 && strncmp(call + length - 3, "_v", 2) == 0) {
        name[strlen(name) - 3] = '\0';
        if ((outcome = table_find(view, name)) != NULL)
            return outcome_of(outcome);
    }
    return SUCCESS;
}

nvmlReturn_t enter(const char *call)
{
    pthread_mutex_lock(&lock);
    if (references > 0)
        refresh();
    view = references > 0 ? latest : NULL;
    pthread_mutex_unlock(&lock);
    return view == NULL ? UNINITIALIZED : forced(call);
}

static nvmlReturn_t check_driver(void)
{
    char path[PATH_MAX], *loaded;
    struct stat seen;
    nvmlReturn_t result;
    learn_own_version();
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

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    nvmlReturn_t result = SUCCESS;
    (void)flags;
    pthread_mutex_lock(&lock);
    if (references == 0 && (result = attach()) == SUCCESS)
        result = forced("nvmlInit");
    references += result == SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result;
    pthread_mutex_lock(&lock);
    result = references > 0 ? SUCCESS : UNINITIALIZED;
    references -= references > 0;
    pthread_mutex_unlock(&lock);
    return result;
}
