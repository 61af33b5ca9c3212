/* Takes locks for a while and checks, with plain keys, that nobody else has them. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rwlock.h"

static const char *name = "hiredis";
static redisContext *nodes[16];
static int ports[16], node_count, violations;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", name, what);
    exit(1);
}

static redisContext *node(const char *host, int port) {
    for (int i = 0; i < node_count; i++)
        if (ports[i] == port) return nodes[i];
    if (node_count == 16) fail("too many nodes");
    redisContext *connection = redisConnect(host, port);
    if (connection == NULL || connection->err) fail(connection ? connection->errstr : "no memory");
    ports[node_count] = port;
    return nodes[node_count++] = connection;
}

/* A plain command on a key. Its reply is good until the next one. hiredis follows no
 * MOVED; this does, and assumes that all nodes are on one host. */
static redisReply *plain(const char *host, const char *word, const char *key, const char *last) {
    static redisReply *reply;
    static redisContext *at;
    const char *argv[] = {word, key, last};
    int argc = last == NULL ? 2 : 3;
    if (at == NULL) at = nodes[0];
    for (;;) {
        if (reply != NULL) freeReplyObject(reply);
        reply = redisCommandArgv(at, argc, argv, NULL);
        if (reply == NULL) fail(at->errstr);
        if (reply->type != REDIS_REPLY_ERROR) return reply;
        if (strncmp(reply->str, "MOVED ", 6) != 0) fail(reply->str);
        at = node(host, atoi(strrchr(reply->str, ':') + 1));
    }
}

static void violation(const char *key, const char *what) {
    violations++;
    fprintf(stderr, "%s: %s: %s\n", name, key, what);
}

/* So that others have time to break in. */
static void work(void) { usleep(rand() % 3001); }

static void as_writer(const char *host, const char *lock, long long token) {
    char w[256], r[256], t[256], text[24];
    snprintf(w, sizeof w, "{%s}:witness:w", lock);
    snprintf(r, sizeof r, "{%s}:witness:r", lock);
    snprintf(t, sizeof t, "{%s}:witness:token", lock);
    if (plain(host, "SETNX", w, name)->integer != 1) violation(lock, "another writer");
    redisReply *readers = plain(host, "GET", r, NULL);
    if (readers->type == REDIS_REPLY_STRING && strcmp(readers->str, "0") != 0)
        violation(lock, "readers beside a writer");
    redisReply *last = plain(host, "GET", t, NULL);
    if (last->type == REDIS_REPLY_STRING && token <= atoll(last->str))
        violation(lock, "a token that does not grow");
    snprintf(text, sizeof text, "%lld", token);
    plain(host, "SET", t, text);
    work();
    plain(host, "DEL", w, NULL);
}

static void as_reader(const char *host, const char *lock) {
    char w[256], r[256];
    snprintf(w, sizeof w, "{%s}:witness:w", lock);
    snprintf(r, sizeof r, "{%s}:witness:r", lock);
    plain(host, "INCR", r, NULL);
    if (plain(host, "GET", w, NULL)->type != REDIS_REPLY_NIL)
        violation(lock, "a writer beside a reader");
    work();
    plain(host, "DECR", r, NULL);
}

int main(int argc, char **argv) {
    char host[256], address[300], *locks[256];
    int port, lock_count = 0;
    if (argc > 1) name = argv[1];
    const char *url = getenv("RWLOCK_URL"), *seconds = getenv("RWLOCK_SECONDS");
    if (url == NULL || sscanf(url, "redis://%255[^:]:%d", host, &port) != 2)
        fail("RWLOCK_URL=redis://host:port");
    char *names = getenv("RWLOCK_LOCKS");
    for (char *word = names ? strtok(names, " ") : NULL; word != NULL && lock_count < 256;
         word = strtok(NULL, " "))
        locks[lock_count++] = word;
    if (lock_count == 0) fail("RWLOCK_LOCKS names no locks");
    node(host, port);
    snprintf(address, sizeof address, "%s:%d", host, port);
    rwlock_owner *me = rwlock_owner_new(name, address);
    if (me == NULL) fail("no owner");

    srand(getpid());
    int reads = 0, writes = 0, timeouts = 0;
    time_t end = time(NULL) + (seconds ? atoi(seconds) : 10);
    while (time(NULL) < end) {
        const char *key = locks[rand() % lock_count];
        enum rwlock_kind kind = rand() % 3 == 0 ? RWLOCK_WRITE : RWLOCK_READ;
        rwlock_options options = {.wait_ms = 5000, .fence = 1, .leased = rand() % 2};
        rwlock *lock;
        enum rwlock_result result = rwlock_acquire(me, key, kind, &options, &lock);
        if (result == RWLOCK_TIMED_OUT) {
            timeouts++;
            continue;
        }
        if (result != RWLOCK_OK) fail(rwlock_error(me));
        if (kind == RWLOCK_WRITE) {
            as_writer(host, key, lock->token);
            writes++;
        } else {
            as_reader(host, key);
            reads++;
        }
        if (rwlock_release(&lock) != RWLOCK_OK) violation(key, rwlock_error(me));
    }
    printf("{\"name\": \"%s\", \"library\": \"hiredis\", \"reads\": %d, \"writes\": %d, "
           "\"timeouts\": %d, \"violations\": %d}\n",
           name, reads, writes, timeouts, violations);
    rwlock_owner_free(me);
    return violations > 0 || reads + writes == 0;
}
