/* A machine whose clocks are wrong, for the process that this library is preloaded into.
 *
 * CHAOS_AHEAD: seconds by which the wall clock is wrong; CHAOS_RATE: how fast all clocks run.  Whoever asks libc for the
 * time is told the wrong one, also libraries in C, and whoever waits waits by the wrong clock: so loops, threads and TLS
 * are as on such a machine.  `true_clock_gettime` tells the truth, to whoever writes down what happened.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NANO 1000000000LL
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static double ahead, rate = 1.0;
static long long begun_wall, begun_monotonic;

int true_clock_gettime(clockid_t clock, struct timespec *at) { return (int)syscall(SYS_clock_gettime, clock, at); }

static long long nanos(const struct timespec *at) { return at->tv_sec * NANO + at->tv_nsec; }

static struct timespec timespec_of(long long value) {
    if (value < 0) value = 0;
    return (struct timespec){.tv_sec = value / NANO, .tv_nsec = value % NANO};
}

static long long now(clockid_t clock) {
    struct timespec at;
    true_clock_gettime(clock, &at);
    return nanos(&at);
}

__attribute__((constructor)) static void begin(void) {
    const char *text;
    if ((text = getenv("CHAOS_AHEAD"))) ahead = atof(text);
    if ((text = getenv("CHAOS_RATE"))) rate = atof(text);
    begun_wall = now(CLOCK_REALTIME);
    begun_monotonic = now(CLOCK_MONOTONIC);
}

static int wall(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

static int bent(clockid_t clock) {
    return begun_wall && (wall(clock) || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE ||
                          clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME);
}

/* From the right time to the wrong one, and back.  What counts from another zero runs on from the same moment. */
static long long wrong_of(clockid_t clock, long long right) {
    long long begun = wall(clock) ? begun_wall : begun_monotonic;
    return begun + (long long)((double)(right - begun) * rate) + (wall(clock) ? (long long)(ahead * NANO) : 0);
}

static long long right_of(clockid_t clock, long long wrong) {
    long long begun = wall(clock) ? begun_wall : begun_monotonic;
    return begun + (long long)((double)(wrong - (wall(clock) ? (long long)(ahead * NANO) : 0) - begun) / rate);
}

static struct timespec deadline(clockid_t clock, const struct timespec *at) {
    return bent(clock) ? timespec_of(right_of(clock, nanos(at))) : *at;
}

static int milliseconds(int wanted) { return wanted <= 0 ? wanted : (int)(wanted / rate + 0.999); }

static struct timespec span(const struct timespec *wanted) { return timespec_of((long long)(nanos(wanted) / rate)); }

/* -- what time it is ---------------------------------------------------------- */

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = true_clock_gettime(clock, at);
    if (!failed && bent(clock)) *at = timespec_of(wrong_of(clock, nanos(at)));
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec found;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &found);
    *at = (struct timeval){.tv_sec = found.tv_sec, .tv_usec = found.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *at) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (at) *at = found.tv_sec;
    return found.tv_sec;
}

/* -- how long to wait ----------------------------------------------------------- */

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    return REAL(epoll_wait)(epoll, events, most, milliseconds(timeout));
}

int epoll_pwait(int epoll, struct epoll_event *events, int most, int timeout, const sigset_t *mask) {
    return REAL(epoll_pwait)(epoll, events, most, milliseconds(timeout), mask);
}

int poll(struct pollfd *files, nfds_t count, int timeout) { return REAL(poll)(files, count, milliseconds(timeout)); }

int select(int count, fd_set *reading, fd_set *writing, fd_set *failing, struct timeval *timeout) {
    struct timeval right;
    if (timeout) {
        struct timespec wanted = {.tv_sec = timeout->tv_sec, .tv_nsec = timeout->tv_usec * 1000};
        wanted = span(&wanted);
        right = (struct timeval){.tv_sec = wanted.tv_sec, .tv_usec = wanted.tv_nsec / 1000};
    }
    return REAL(select)(count, reading, writing, failing, timeout ? &right : NULL);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    struct timespec right = flags & TIMER_ABSTIME ? deadline(clock, wanted) : span(wanted);
    return REAL(clock_nanosleep)(clock, flags, &right, left);
}

int nanosleep(const struct timespec *wanted, struct timespec *left) {
    struct timespec right = span(wanted);
    return REAL(nanosleep)(&right, left);
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
    struct timespec right = deadline(clock, until);
    return REAL(sem_clockwait)(semaphore, clock, &right);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    struct timespec right = deadline(CLOCK_REALTIME, until);
    return REAL(sem_timedwait)(semaphore, &right);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
    struct timespec right = deadline(clock, until);
    return REAL(pthread_cond_clockwait)(condition, mutex, clock, &right);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    /* Which clock a condition has cannot be asked; no machine has been up for as long as there is Unix. */
    return pthread_cond_clockwait(condition, mutex, until->tv_sec > NANO ? CLOCK_REALTIME : CLOCK_MONOTONIC, until);
}
