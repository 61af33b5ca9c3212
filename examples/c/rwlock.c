#define _GNU_SOURCE
#include "rwlock.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/time.h>
#include <time.h>

enum {
    GRACE_MS = 10000, /* what an answer may take beyond the time to wait */
    PAUSE_MS = 50,    /* between two tries on a server that is not ready */
    MAX_NODES = 64
};

struct node {
    char *host;
    int port;
    redisContext *connection;
};

struct rwlock_owner {
    char id[33];
    char error[256];
    struct node nodes[MAX_NODES];
    int node_count, seed_count;
    int current; /* the node that answered last */
    rwlock *held;
};

static long long now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

static void pause_ms(long long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Finds or adds "host:port". -1: it is no such thing, or there are too many. */
static int node_at(rwlock_owner *owner, const char *address, size_t length) {
    const char *colon = memrchr(address, ':', length);
    if (colon == NULL || owner->node_count == MAX_NODES) return -1;
    int host_length = (int)(colon - address), port = atoi(colon + 1);
    if (host_length == 0 || port < 1 || port > 65535) return -1;
    for (int i = 0; i < owner->node_count; i++) {
        struct node *node = &owner->nodes[i];
        if (node->port == port && (int)strlen(node->host) == host_length &&
            memcmp(node->host, address, host_length) == 0)
            return i;
    }
    struct node *node = &owner->nodes[owner->node_count];
    node->host = strndup(address, host_length);
    if (node->host == NULL) return -1;
    node->port = port;
    node->connection = NULL;
    return owner->node_count++;
}

rwlock_owner *rwlock_owner_new(const char *nodes) {
    unsigned char random[16];
    rwlock_owner *owner = calloc(1, sizeof *owner);
    if (owner == NULL || getrandom(random, sizeof random, 0) != sizeof random) goto failed;
    for (int i = 0; i < 16; i++) sprintf(owner->id + 2 * i, "%02x", random[i]);
    while (*nodes != '\0') {
        size_t length = strcspn(nodes, ",");
        if (node_at(owner, nodes, length) < 0) goto failed;
        nodes += length + (nodes[length] == ',');
    }
    owner->seed_count = owner->node_count;
    if (owner->seed_count == 0) goto failed;
    return owner;
failed:
    rwlock_owner_free(owner);
    return NULL;
}

static void hang_up(struct node *node) {
    if (node->connection != NULL) redisFree(node->connection);
    node->connection = NULL;
}

void rwlock_owner_free(rwlock_owner *owner) {
    if (owner == NULL) return;
    for (int i = 0; i < owner->node_count; i++) {
        hang_up(&owner->nodes[i]);
        free(owner->nodes[i].host);
    }
    free(owner);
}

const char *rwlock_error(const rwlock_owner *owner) { return owner->error; }

static int begins(const char *text, const char *word) {
    return strncmp(text, word, strlen(word)) == 0;
}

/* Connects, says the command, and waits for the answer for so long; 0: for ever.
 * NULL: the connection is broken. */
static redisReply *say(struct node *node, long long limit_ms, int argc, const char **argv) {
    if (node->connection == NULL) {
        struct timeval patience = {GRACE_MS / 1000, 0};
        node->connection = redisConnectWithTimeout(node->host, node->port, patience);
        if (node->connection == NULL || node->connection->err != 0) return NULL;
        redisEnableKeepAlive(node->connection);
    }
    struct timeval limit = {limit_ms / 1000, limit_ms % 1000 * 1000};
    if (redisSetTimeout(node->connection, limit) != REDIS_OK) return NULL;
    /* To write to a connection that is closed would end the process. */
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    redisReply *reply = redisCommandArgv(node->connection, argc, argv, NULL);
    sigtimedwait(&pipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return reply;
}

/* Asks the node that has the key. `*again`: it failed in a way that passes. */
static redisReply *ask(rwlock_owner *owner, long long limit_ms, int argc, const char **argv,
                       int *again) {
    static const char *passing[] = {"UNBLOCKED ", "READONLY ",    "LOADING ",
                                    "TRYAGAIN ",  "CLUSTERDOWN ", "MASTERDOWN "};
    *again = 0;
    for (int hops = 0; hops < 5; hops++) {
        struct node *node = &owner->nodes[owner->current];
        redisReply *reply = say(node, limit_ms, argc, argv);
        int broken = reply == NULL;
        if (broken) {
            const char *why = node->connection ? node->connection->errstr : "no memory";
            snprintf(owner->error, sizeof owner->error, "%s:%d: %s", node->host, node->port, why);
        } else if (reply->type == REDIS_REPLY_ERROR) {
            snprintf(owner->error, sizeof owner->error, "%s", reply->str);
            const char *address = strrchr(reply->str, ' ');
            if (begins(reply->str, "MOVED ") && address != NULL) {
                int moved = node_at(owner, address + 1, strlen(address + 1));
                freeReplyObject(reply);
                if (moved < 0) return NULL;
                owner->current = moved;
                continue;
            }
            for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
                if (begins(reply->str, passing[i])) *again = 1;
            broken = begins(reply->str, "READONLY "); /* it is not a primary any more */
        }
        if (broken) {
            *again = 1;
            hang_up(node);
            owner->current = (owner->current + 1) % owner->seed_count;
        }
        if (*again && reply != NULL) {
            freeReplyObject(reply);
            reply = NULL;
        }
        return reply;
    }
    *again = 1;
    return NULL;
}

static enum rwlock_result named(rwlock_owner *owner, const redisReply *reply) {
    if (reply == NULL) return RWLOCK_FAILED;
    if (reply->type != REDIS_REPLY_ERROR) return RWLOCK_OK;
    if (begins(owner->error, "NOTHELD ")) return RWLOCK_NOT_HELD;
    if (begins(owner->error, "DEADLOCK ")) return RWLOCK_DEADLOCK;
    return RWLOCK_FAILED;
}

enum rwlock_result rwlock_acquire(rwlock_owner *owner, const char *key, enum rwlock_kind kind,
                                  const rwlock_options *options, rwlock **lock) {
    rwlock_options wanted = options ? *options : (rwlock_options){0};
    if (wanted.lease_ms == 0) wanted.lease_ms = 30000;
    *lock = NULL;
    for (rwlock *other = owner->held; other != NULL; other = other->next)
        if (other->kind == kind && strcmp(other->key, key) == 0) return RWLOCK_REENTRY;
    rwlock *got = calloc(1, sizeof *got);
    if (got == NULL || (got->key = strdup(key)) == NULL) {
        snprintf(owner->error, sizeof owner->error, "no memory");
        free(got);
        return RWLOCK_FAILED;
    }
    enum rwlock_result result = RWLOCK_TIMED_OUT;
    long long start = now_ms();
    int again;
    do {
        long long left = wanted.wait_ms ? wanted.wait_ms - (now_ms() - start) : 0;
        if (wanted.wait_ms && left < 1) left = 1;
        char lease[24], block[24];
        sprintf(lease, "%lld", wanted.lease_ms);
        sprintf(block, "%lld", left);
        /* ONCE: asking again after a lost answer does not count twice. */
        const char *argv[9] = {kind == RWLOCK_READ ? "RWLOCK.RLOCK" : "RWLOCK.WLOCK",
                               key, owner->id, lease, "BLOCK", block, "ONCE"};
        int argc = 7;
        if (!wanted.leased) argv[argc++] = "SESSION";
        if (wanted.fence && kind == RWLOCK_WRITE) argv[argc++] = "FENCE";
        redisReply *reply = ask(owner, left ? left + GRACE_MS : 0, argc, argv, &again);
        result = named(owner, reply);
        if (result == RWLOCK_OK && reply->type == REDIS_REPLY_INTEGER) result = RWLOCK_TIMED_OUT;
        if (result == RWLOCK_OK && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
            got->token = reply->element[1]->integer;
        if (reply != NULL) freeReplyObject(reply);
        if (again && wanted.wait_ms && now_ms() - start >= wanted.wait_ms) {
            result = RWLOCK_TIMED_OUT;
            again = 0;
        }
        if (again) pause_ms(PAUSE_MS);
    } while (again);
    if (result != RWLOCK_OK) {
        free(got->key);
        free(got);
        return result;
    }
    got->owner = owner;
    got->kind = kind;
    got->session = !wanted.leased;
    got->lease_ms = wanted.lease_ms;
    got->valid_till = now_ms() + wanted.lease_ms;
    got->next = owner->held;
    owner->held = got;
    *lock = got;
    return RWLOCK_OK;
}

enum rwlock_result rwlock_renew(rwlock *lock) {
    char lease[24];
    sprintf(lease, "%lld", lock->lease_ms);
    const char *argv[] = {"RWLOCK.RENEW", lock->key, lock->owner->id, lease};
    for (;;) {
        int again;
        long long asked = now_ms();
        redisReply *reply = ask(lock->owner, lock->lease_ms, 4, argv, &again);
        enum rwlock_result result = named(lock->owner, reply);
        if (reply != NULL) freeReplyObject(reply);
        if (result == RWLOCK_OK) lock->valid_till = asked + lock->lease_ms;
        if (!again) return result;
        if (now_ms() >= lock->valid_till) return RWLOCK_NOT_HELD;
        pause_ms(PAUSE_MS);
    }
}

enum rwlock_result rwlock_release(rwlock *lock) {
    rwlock_owner *owner = lock->owner;
    const char *kind = lock->kind == RWLOCK_READ ? "READ" : "WRITE";
    const char *argv[] = {"RWLOCK.UNLOCK", lock->key, owner->id, kind};
    enum rwlock_result result;
    for (int tries = 0;; tries++) {
        int again;
        redisReply *reply = ask(owner, GRACE_MS, 4, argv, &again);
        result = named(owner, reply);
        if (reply != NULL) freeReplyObject(reply);
        int in_time = now_ms() < lock->valid_till;
        /* In time, so the lease cannot have lapsed: the first request got through. */
        if (result == RWLOCK_NOT_HELD && tries > 0 && in_time && !lock->session) result = RWLOCK_OK;
        if (!again || !in_time) break;
        pause_ms(PAUSE_MS);
    }
    for (rwlock **link = &owner->held; *link != NULL; link = &(*link)->next) {
        if (*link != lock) continue;
        *link = lock->next;
        break;
    }
    free(lock->key);
    free(lock);
    return result;
}
