/* A wall clock that a test sets, for LD_PRELOAD.
 *
 * The times of day that a program asks the C library for are moved by what the
 * file RWLOCK_TEST_CLOCK says, which the test changes while the program runs.
 * The clock that only goes forward (CLOCK_MONOTONIC) stays true, as it does when
 * an administrator or a time service sets the clock of a machine.
 *
 * Only old symbols of the C library are used, so that what is built on one system
 * runs with the libraries of another.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* What the file has; clock.rs writes it. */
struct face {
    uint64_t turn;     /* odd while the rest is being written */
    int64_t offset;    /* how far the clock is ahead, in us ... */
    int64_t since;     /* ... when CLOCK_MONOTONIC says this, in us */
    int64_t drift;     /* us that it gains in each second from then on */
};

static volatile struct face *face;

__attribute__((constructor)) static void open_face(void) {
    const char *path = getenv("RWLOCK_TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY) : -1;
    if (fd < 0) return;
    void *map = mmap(0, sizeof(struct face), PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) face = map;
    close(fd);
}

static int64_t ask(clockid_t clock) {
    struct timespec now;
    syscall(SYS_clock_gettime, clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t wall(void) {
    if (!face) return ask(CLOCK_REALTIME);
    for (;;) {
        uint64_t turn = __atomic_load_n(&face->turn, __ATOMIC_ACQUIRE);
        int64_t offset = face->offset, since = face->since, drift = face->drift;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (turn % 2 == 0 && turn == __atomic_load_n(&face->turn, __ATOMIC_RELAXED)) {
            int64_t gone = ask(CLOCK_MONOTONIC) / 1000 - since;
            return ask(CLOCK_REALTIME) + (offset + gone * drift / 1000000) * 1000;
        }
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) {
        return (int)syscall(SYS_clock_gettime, clock, now);
    }
    int64_t ns = wall();
    now->tv_sec = ns / 1000000000;
    now->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    int64_t us = wall() / 1000;
    now->tv_sec = us / 1000000;
    now->tv_usec = us % 1000000;
    return 0;
}

time_t time(time_t *now) {
    time_t seconds = wall() / 1000000000;
    if (now) *now = seconds;
    return seconds;
}
