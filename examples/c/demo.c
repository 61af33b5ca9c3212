/* Readers and writers in processes of their own, on one lock, as a timeline. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rwlock.h"

static const char *who;
static long long start;

static long long now_ms(void) {
    struct timeval time;
    gettimeofday(&time, NULL);
    return time.tv_sec * 1000LL + time.tv_usec / 1000;
}

static void say(const char *what) {
    printf("%5lld ms  %s  %s\n", now_ms() - start, who, what);
    fflush(stdout);
}

static int take(const char *address) {
    rwlock_owner *me = rwlock_owner_new(who, address);
    if (me == NULL) return 1;
    rwlock_options options = {.wait_ms = 5000, .fence = 1};
    int writes = who[0] == 'w';
    srand(getpid());
    for (int round = 0; round < 3; round++) {
        usleep(rand() % 200000); /* so that they do not all ask at once */
        say("asks");
        rwlock *lock;
        if (rwlock_acquire(me, "demo", writes ? RWLOCK_WRITE : RWLOCK_READ, &options, &lock)) {
            say(rwlock_error(me));
            return 1;
        }
        char text[64];
        snprintf(text, sizeof text, "          WRITES  (token %lld)", lock->token);
        say(writes ? text : "     reads");
        usleep(writes ? 100000 : 150000); /* stands for the work */
        say(writes ? "          done" : "     done");
        if (rwlock_release(&lock)) return 1;
    }
    rwlock_owner_free(me);
    return 0;
}

int main(void) {
    static const char *names[] = {"reader-1", "reader-2", "reader-3", "writer-1", "writer-2"};
    const char *url = getenv("REDIS_URL");
    const char *address = url != NULL ? url : "127.0.0.1:6379";
    if (strncmp(address, "redis://", 8) == 0) address += 8;
    start = now_ms();
    for (int i = 0; i < 5; i++) {
        who = names[i];
        if (fork() == 0) return take(address);
    }
    int failed = 0, status;
    while (wait(&status) > 0) failed |= status;
    return failed != 0;
}
