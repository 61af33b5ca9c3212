#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rwlock_internal.h"

enum {
    GRACE_MS = 500,     /* what an answer may take beyond the wait */
    PATIENCE_MS = 5000, /* what an answer may take where nothing is waited for */
    PAUSE_MS = 50,      /* between two tries on a server that is not ready */
    RETRIES = 5         /* how often to ask again without a pause */
};

void rwlock_hold_free(struct hold *hold) {
    for (int i = 0; i < hold->count; i++) free(hold->grips[i].key);
    free(hold);
}

enum rwlock_result rwlock_fail(rwlock_owner *owner, enum rwlock_result result, const char *key,
                               const char *why) {
    snprintf(owner->error, sizeof owner->error, "%.200s: %s", key, why);
    return result;
}

/* `held_ms` as the server replied it, -2: no server was ready. */
static enum rwlock_result timed_out(rwlock_owner *owner, const char *key, long long held_ms) {
    char why[512];
    owner->held_ms = held_ms;
    if (held_ms > 0)
        snprintf(why, sizeof why,
                 "not granted in time: its lease ends in %lld ms, unless it is renewed", held_ms);
    else if (held_ms == 0)
        snprintf(why, sizeof why, "not granted in time: others are ahead in its queue");
    else if (held_ms == -1)
        snprintf(why, sizeof why, "not granted in time: it is held without expiry");
    else
        snprintf(why, sizeof why, "not granted in time: no server was ready: %s",
                 rwlock_net_error(owner->net));
    return rwlock_fail(owner, RWLOCK_TIMED_OUT, key, why);
}

/* The result that a reply stands for. */
static enum rwlock_result named(rwlock_owner *owner, const char *key, const redisReply *reply) {
    if (reply->type != REDIS_REPLY_ERROR) return RWLOCK_OK;
    enum rwlock_result result = RWLOCK_FAILED;
    if (strncmp(reply->str, "NOTHELD ", 8) == 0) result = RWLOCK_NOT_HELD;
    if (strncmp(reply->str, "DEADLOCK ", 9) == 0) result = RWLOCK_DEADLOCK;
    if (strstr(reply->str, "unknown command") != NULL)
        return rwlock_fail(owner, RWLOCK_NOT_LOADED, key,
                           "the rwlock module is not loaded, or is too old for the command");
    return rwlock_fail(owner, result, key, rwlock_net_error(owner->net));
}

static void pause_ms(long long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static long long at_least_1(long long ms) { return ms < 1 ? 1 : ms; }

/* Asks until the locks are granted or the time is up. A link that is there is a session's:
 * no other will do. Leaves the link that was used. `argv` has room for 5 more words. */
static enum rwlock_result request(struct hold *hold, const rwlock_options *options, int argc,
                                  const char **argv, struct rwlock_link **link,
                                  redisReply **reply) {
    rwlock_owner *owner = hold->owner;
    const char *key = hold->grips[0].key;
    int bound = *link != NULL, failed = 0, retries = 0;
    int once = options->wait_ms == 0, forever = options->wait_ms < 0;
    /* To hang up on a session would lose what it has. */
    long long patience = bound || once ? PATIENCE_MS : GRACE_MS;
    long long end = rwlock_now_ms() + (forever ? 0 : options->wait_ms);
    if (hold->session) argv[argc++] = "SESSION";
    if (options->fence) argv[argc++] = "FENCE";
    argv[argc++] = "ONCE"; /* a request that is sent again after a lost reply counts once */
    for (;;) {
        long long left = at_least_1(end + patience - rwlock_now_ms());
        enum rwlock_answer answer =
            rwlock_net_link(owner->net, link, &hold->node, forever ? PATIENCE_MS : left);
        if (answer == ANSWERED) {
            char block[24];
            left = end - rwlock_now_ms();
            sprintf(block, "%lld", forever ? 0 : at_least_1(left));
            argv[argc] = "BLOCK";
            argv[argc + 1] = block;
            answer = rwlock_net_ask(owner->net, link, &hold->node,
                                    forever ? 0 : at_least_1(left + patience),
                                    once ? argc : argc + 2, argv, reply);
        }
        if (answer == ANSWERED) {
            enum rwlock_result result = named(owner, key, *reply);
            if ((*reply)->type == REDIS_REPLY_INTEGER)
                result = timed_out(owner, key, (*reply)->integer);
            if (result == RWLOCK_OK) return RWLOCK_OK;
            freeReplyObject(*reply);
            return result;
        }
        if (bound && answer != LATER)
            return rwlock_fail(owner, RWLOCK_NOT_HELD, key, rwlock_net_error(owner->net));
        if (!once && !forever && rwlock_now_ms() >= end) return timed_out(owner, key, -2);
        if (answer == RETRY && retries++ < RETRIES) continue;
        if (once || !rwlock_net_reached(owner->net)) {
            /* Each address once. One that never answered may be wrong: no time for it. */
            if (++failed < rwlock_net_count(owner->net)) continue;
            if (answer != BROKEN) return timed_out(owner, key, -2);
            return rwlock_fail(owner, RWLOCK_FAILED, key, rwlock_net_error(owner->net));
        }
        pause_ms(PAUSE_MS);
    }
}

/* Sends what does not wait: RENEW, DOWNGRADE, UNLOCK. */
static enum rwlock_result command(struct hold *hold, long long limit_ms, int argc,
                                  const char **argv) {
    rwlock_owner *owner = hold->owner;
    const char *key = hold->grips[0].key;
    int renews = strstr(argv[0], "RENEW") != NULL;
    long long end = rwlock_now_ms() + limit_ms;
    for (int again = 0;; again = 1) {
        if (hold->lost) return rwlock_fail(owner, RWLOCK_NOT_HELD, key, "the hold was lost");
        redisReply *reply;
        struct rwlock_link *other = NULL;
        enum rwlock_answer answer =
            rwlock_net_ask(owner->net, hold->session ? &hold->link : &other, &hold->node,
                           at_least_1(end - rwlock_now_ms()), argc, argv, &reply);
        rwlock_net_give_back(owner->net, &other);
        if (answer == ANSWERED) {
            enum rwlock_result result = named(owner, key, reply);
            /* MRENEW and MUNLOCK say for each lock whether it was held. */
            for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
                if (reply->element[i]->integer == (renews ? 0 : -1))
                    result = rwlock_fail(owner, RWLOCK_NOT_HELD, key, "not all locks are held");
            freeReplyObject(reply);
            if (result != RWLOCK_NOT_HELD) return result;
            /* In time, so the lease cannot have ended: the first request got through. */
            if (again && !renews && !hold->session && rwlock_now_ms() < hold->valid_till)
                return RWLOCK_OK;
            hold->lost = 1;
            return result;
        }
        if (hold->session && answer != LATER) {
            hold->lost = 1;
            return rwlock_fail(owner, RWLOCK_NOT_HELD, key, rwlock_net_error(owner->net));
        }
        if (rwlock_now_ms() >= end)
            return rwlock_fail(owner, RWLOCK_FAILED, key, rwlock_net_error(owner->net));
        if (answer != RETRY) pause_ms(PAUSE_MS);
    }
}

/* Appends the keys of a hold, from one to another. */
static int add_keys(const struct hold *hold, int from, int to, int argc, const char **argv) {
    for (int i = from; i < to; i++) argv[argc++] = hold->grips[i].key;
    return argc;
}

static enum rwlock_result renew(struct hold *hold, long long limit_ms) {
    char lease[24];
    const char *argv[hold->count + 4];
    int argc = 0;
    sprintf(lease, "%lld", hold->lease_ms);
    argv[argc++] = hold->count == 1 ? "RWLOCK.RENEW" : "RWLOCK.MRENEW";
    if (hold->count == 1) argv[argc++] = hold->grips[0].key;
    argv[argc++] = hold->owner->id;
    argv[argc++] = lease;
    if (hold->count > 1) argc = add_keys(hold, 0, hold->count, argc, argv);
    long long asked = rwlock_now_ms();
    enum rwlock_result result = command(hold, limit_ms, argc, argv);
    if (result != RWLOCK_OK) return result;
    hold->renewed = asked;
    hold->valid_till = asked + hold->lease_ms;
    return RWLOCK_OK;
}

enum rwlock_result rwlock_hold_check(struct hold *hold) { return renew(hold, PATIENCE_MS); }

enum rwlock_result rwlock_hold_downgrade(struct hold *hold, struct grip *grip) {
    char lease[24];
    sprintf(lease, "%lld", hold->lease_ms);
    const char *argv[] = {"RWLOCK.DOWNGRADE", grip->key, hold->owner->id, lease};
    enum rwlock_result result = command(hold, PATIENCE_MS, 4, argv);
    if (result == RWLOCK_OK) grip->token = 0;
    return result;
}

/* Gives the locks of the hold back, and frees it. */
enum rwlock_result rwlock_hold_end(struct hold *hold) {
    rwlock_owner *owner = hold->owner;
    char count[24];
    const char *argv[hold->count + 4];
    int argc = 0;
    sprintf(count, "%d", hold->count);
    argv[argc++] = hold->count == 1 ? "RWLOCK.UNLOCK" : "RWLOCK.MUNLOCK";
    if (hold->count == 1) argv[argc++] = hold->grips[0].key;
    argv[argc++] = owner->id;
    argv[argc++] = "ALL";
    if (hold->count > 1) {
        argv[argc++] = count;
        argc = add_keys(hold, 0, hold->count, argc, argv);
    }
    enum rwlock_result result = command(hold, PATIENCE_MS, argc, argv);
    if (result == RWLOCK_NOT_HELD && hold->session) {
        /* After a failover the new primary keeps a session's hold until its lease ends. */
        struct rwlock_link *other = NULL;
        redisReply *reply;
        int node = hold->node;
        rwlock_net_ask(owner->net, &other, &node, GRACE_MS, argc, argv, &reply);
        if (reply != NULL) freeReplyObject(reply);
        rwlock_net_give_back(owner->net, &other);
    }
    rwlock_net_give_back(owner->net, &hold->link);
    struct hold **at = &owner->holds;
    while (*at != hold) at = &(*at)->next;
    *at = hold->next;
    rwlock_hold_free(hold);
    return result;
}

/* The first `reads` locks of the hold are to read, the others to write. */
enum rwlock_result rwlock_hold_acquire(struct hold *hold, int reads, const rwlock_options *wanted) {
    rwlock_owner *owner = hold->owner;
    rwlock_options options = *wanted;
    char lease[24], read_count[24], write_count[24];
    const char *argv[hold->count + 12];
    int argc = 0;
    sprintf(lease, "%lld", hold->lease_ms);
    sprintf(read_count, "%d", reads);
    sprintf(write_count, "%d", hold->count - reads);
    options.fence = options.fence && reads < hold->count;
    if (hold->count == 1) {
        argv[argc++] = reads ? "RWLOCK.RLOCK" : "RWLOCK.WLOCK";
        argv[argc++] = hold->grips[0].key;
    } else {
        argv[argc++] = "RWLOCK.MLOCK";
    }
    argv[argc++] = owner->id;
    argv[argc++] = lease;
    if (hold->count > 1 && reads > 0) {
        argv[argc++] = "READ";
        argv[argc++] = read_count;
        argc = add_keys(hold, 0, reads, argc, argv);
    }
    if (hold->count > 1 && reads < hold->count) {
        argv[argc++] = "WRITE";
        argv[argc++] = write_count;
        argc = add_keys(hold, reads, hold->count, argc, argv);
    }
    redisReply *reply;
    enum rwlock_result result = request(hold, &options, argc, argv, &hold->link, &reply);
    if (result != RWLOCK_OK || !hold->session) rwlock_net_give_back(owner->net, &hold->link);
    if (result != RWLOCK_OK) return result;
    for (size_t i = 1; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
        hold->grips[reads + i - 1].token = reply->element[i]->integer;
    freeReplyObject(reply);
    hold->renewed = rwlock_now_ms();
    hold->valid_till = hold->renewed + hold->lease_ms;
    hold->next = owner->holds;
    owner->holds = hold;
    return RWLOCK_OK;
}

enum rwlock_result rwlock_hold_upgrade(struct hold *hold, struct grip *grip,
                                       const rwlock_options *options) {
    char lease[24];
    sprintf(lease, "%lld", hold->lease_ms);
    const char *argv[12] = {"RWLOCK.UPGRADE", grip->key, hold->owner->id, lease};
    rwlock_options wanted = options ? *options : (rwlock_options){0};
    struct rwlock_link *other = NULL;
    redisReply *reply;
    if (hold->lost)
        return rwlock_fail(hold->owner, RWLOCK_NOT_HELD, grip->key, "the hold was lost");
    enum rwlock_result result =
        request(hold, &wanted, 4, argv, hold->session ? &hold->link : &other, &reply);
    rwlock_net_give_back(hold->owner->net, &other);
    if (result == RWLOCK_NOT_HELD) hold->lost = 1;
    if (result != RWLOCK_OK) return result;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
        grip->token = reply->element[1]->integer;
    freeReplyObject(reply);
    hold->renewed = rwlock_now_ms();
    hold->valid_till = hold->renewed + hold->lease_ms;
    return RWLOCK_OK;
}

enum rwlock_result rwlock_hold_poll(struct hold *hold) {
    if (!hold->lost && hold->session) hold->lost = !rwlock_link_is_open(hold->link);
    long long third = hold->lease_ms / 3 < PATIENCE_MS ? hold->lease_ms / 3 : PATIENCE_MS;
    if (!hold->lost && !hold->session && rwlock_now_ms() - hold->renewed >= hold->lease_ms / 3)
        renew(hold, at_least_1(third)); /* if it fails there may be time to try again */
    if (!hold->session && rwlock_now_ms() >= hold->valid_till) hold->lost = 1;
    if (!hold->lost) return RWLOCK_OK;
    return rwlock_fail(hold->owner, RWLOCK_NOT_HELD, hold->grips[0].key, "the hold was lost");
}
