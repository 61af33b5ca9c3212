/* On the server at RWLOCK_URL, which has to be the test's alone: it is demoted for a
 * moment. Another client is a process of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rwlock.h"

static char host[256], address[300], key[64];
static int port;
static redisContext *server;

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static redisReply *value(redisReply *map, const char *name) {
    for (size_t i = 0; i + 1 < map->elements; i += 2)
        if (strcmp(map->element[i]->str, name) == 0) return map->element[i + 1];
    CHECK(!"the name is there");
    return NULL;
}

/* The client of the one waiter ("waiters", "client"), or of the one holder. 0: none. */
static long long client(const char *lock, const char *list, const char *id) {
    redisReply *seen = redisCommand(server, "RWLOCK.INSPECT %s", lock);
    CHECK(seen != NULL && seen->type == REDIS_REPLY_ARRAY);
    redisReply *those = value(seen, list);
    long long found = those->elements == 1 ? value(those->element[0], id)->integer : 0;
    freeReplyObject(seen);
    return found;
}

static long long waiter(const char *lock, long long other_than) {
    for (int i = 0; i < 2000; i++) {
        long long id = client(lock, "waiters", "client");
        if (id != 0 && id != other_than) return id;
        usleep(5000);
    }
    CHECK(!"one waits");
    return 0;
}

static rwlock_owner *owner(void) {
    rwlock_owner *new = rwlock_owner_new(address);
    CHECK(new != NULL);
    return new;
}

static rwlock *take(rwlock_owner *me, const char *lock, rwlock_options options) {
    rwlock *got;
    enum rwlock_result result = rwlock_acquire(me, lock, RWLOCK_WRITE, &options, &got);
    if (result != RWLOCK_OK) fprintf(stderr, "%d %s\n", result, rwlock_error(me));
    CHECK(result == RWLOCK_OK);
    return got;
}

/* Another process that takes the lock and gives it back. */
static pid_t other(void) {
    pid_t pid = fork();
    if (pid == 0) {
        rwlock_owner *me = owner();
        rwlock *lock = take(me, key, (rwlock_options){.wait_ms = 20000});
        exit(rwlock_release(lock) != RWLOCK_OK);
    }
    return pid;
}

static int ended_well(pid_t pid) {
    int status;
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static void command(const char *format, long long number) {
    redisReply *reply = redisCommand(server, format, number);
    CHECK(reply != NULL && reply->type != REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

static void readers_share_and_writers_exclude(void) {
    rwlock_owner *ann = owner(), *bob = owner();
    rwlock *a, *b, *c;
    CHECK(rwlock_acquire(ann, key, RWLOCK_READ, NULL, &a) == RWLOCK_OK);
    CHECK(rwlock_acquire(bob, key, RWLOCK_READ, NULL, &b) == RWLOCK_OK);
    CHECK(rwlock_acquire(ann, key, RWLOCK_READ, NULL, &c) == RWLOCK_REENTRY);
    CHECK(rwlock_release(b) == RWLOCK_OK);
    rwlock_options soon = {.wait_ms = 20};
    CHECK(rwlock_acquire(bob, key, RWLOCK_WRITE, &soon, &b) == RWLOCK_TIMED_OUT && b == NULL);
    CHECK(rwlock_release(a) == RWLOCK_OK);
    long long last = 0;
    for (int i = 0; i < 3; i++) {
        a = take(ann, key, (rwlock_options){.fence = 1, .leased = i == 1});
        CHECK(a->token > last);
        last = a->token;
        CHECK(rwlock_release(a) == RWLOCK_OK);
    }
    rwlock_owner_free(ann);
    rwlock_owner_free(bob);
}

static void a_lost_lock_is_told(void) {
    rwlock_owner *ann = owner();
    rwlock *lock = take(ann, key, (rwlock_options){.lease_ms = 200, .leased = 1});
    for (int i = 0; i < 5; i++) {
        usleep(100000);
        CHECK(rwlock_renew(lock) == RWLOCK_OK);
    }
    redisReply *reply = redisCommand(server, "RWLOCK.FORCEUNLOCK %s", key);
    CHECK(reply != NULL && reply->integer == 1);
    freeReplyObject(reply);
    CHECK(rwlock_renew(lock) == RWLOCK_NOT_HELD);
    CHECK(rwlock_release(lock) == RWLOCK_NOT_HELD);
    rwlock_owner_free(ann);
}

static void a_session_ends_with_its_connection(void) {
    rwlock_owner *ann = owner();
    rwlock *lock = take(ann, key, (rwlock_options){.lease_ms = 60000});
    pid_t pid = other();
    waiter(key, 0);
    command("CLIENT KILL ID %lld", client(key, "holders", "session"));
    CHECK(ended_well(pid));
    CHECK(rwlock_release(lock) == RWLOCK_NOT_HELD);
    rwlock_owner_free(ann);
}

static void deadlock_is_an_error(void) {
    char second[80];
    snprintf(second, sizeof second, "%s:2", key);
    rwlock_owner *ann = owner();
    rwlock *lock = take(ann, key, (rwlock_options){0}), *none;
    pid_t pid = fork();
    if (pid == 0) {
        rwlock_owner *bob = owner();
        take(bob, second, (rwlock_options){0});
        take(bob, key, (rwlock_options){0});
        exit(0); /* the sessions end with the process */
    }
    waiter(key, 0);
    CHECK(rwlock_acquire(ann, second, RWLOCK_WRITE, NULL, &none) == RWLOCK_DEADLOCK);
    CHECK(rwlock_release(lock) == RWLOCK_OK);
    CHECK(ended_well(pid));
    rwlock_owner_free(ann);
}

static void a_wait_goes_on_after_the_connection_broke(void) {
    rwlock_owner *ann = owner();
    rwlock *lock = take(ann, key, (rwlock_options){0});
    pid_t pid = other();
    long long id = waiter(key, 0);
    sleep(1);
    CHECK(waiter(key, 0) == id); /* nothing has cut it short */
    command("CLIENT KILL ID %lld", id);
    waiter(key, id);
    CHECK(rwlock_release(lock) == RWLOCK_OK);
    CHECK(ended_well(pid));
    rwlock_owner_free(ann);
}

static void a_wait_goes_on_after_a_failover(void) {
    rwlock_owner *ann = owner();
    rwlock *lock = take(ann, key, (rwlock_options){.leased = 1});
    pid_t pid = other();
    long long id = waiter(key, 0);
    command("REPLICAOF 127.0.0.1 %lld", 1);
    usleep(200000);
    command("REPLICAOF NO ONE", 0);
    waiter(key, id);
    CHECK(rwlock_release(lock) == RWLOCK_OK);
    CHECK(ended_well(pid));
    rwlock_owner_free(ann);
}

int main(void) {
    static const struct {
        const char *name;
        void (*test)(void);
    } tests[] = {
        {"readers share and writers exclude", readers_share_and_writers_exclude},
        {"a lost lock is told", a_lost_lock_is_told},
        {"a session ends with its connection", a_session_ends_with_its_connection},
        {"deadlock is an error", deadlock_is_an_error},
        {"a wait goes on after the connection broke", a_wait_goes_on_after_the_connection_broke},
        {"a wait goes on after a failover", a_wait_goes_on_after_a_failover},
    };
    const char *url = getenv("RWLOCK_URL");
    CHECK(url != NULL && sscanf(url, "redis://%255[^:]:%d", host, &port) == 2);
    snprintf(address, sizeof address, "%s:%d", host, port);
    server = redisConnect(host, port);
    CHECK(server != NULL && server->err == 0);
    alarm(120);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        snprintf(key, sizeof key, "c:%d:%zu", (int)getpid(), i);
        tests[i].test();
        printf("ok  %s\n", tests[i].name);
        fflush(stdout); /* else a child would print it once more */
    }
    redisFree(server);
    return 0;
}
