// A wall clock that somebody sets again and again: 1999, 2038 and back, every 200 ms. The monotonic clock is the kernel's.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t jumped(void)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (now.tv_nsec / 200000000) % 2 ? 915148800 : 2145916800;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = (int)syscall(SYS_clock_gettime, clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec = jumped();
    return status;
}

int gettimeofday(struct timeval *now, void *zone)
{
    (void)zone;
    now->tv_sec = jumped();
    now->tv_usec = 0;
    return 0;
}

time_t time(time_t *now)
{
    time_t at = jumped();
    if (now)
        *now = at;
    return at;
}
