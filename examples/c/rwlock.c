#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "rwlock_internal.h"

/* Copies what the server accepts in the name of a connection. */
static void printable(char *to, const char *from, size_t size) {
    for (; *from != '\0' && size > 1; from++, size--)
        *to++ = *from > ' ' && *from <= '~' ? *from : '-';
    *to = '\0';
}

rwlock_owner *rwlock_owner_new(const char *name, const char *nodes) {
    char host[64] = "unknown", shown_name[81], shown_host[61], client[160];
    unsigned char random[8];
    rwlock_owner *owner = calloc(1, sizeof *owner);
    if (owner == NULL) return NULL;
    gethostname(host, sizeof host - 1);
    printable(shown_name, name ? name : program_invocation_short_name, sizeof shown_name);
    printable(shown_host, host, sizeof shown_host);
    snprintf(client, sizeof client, "%s@%s:%d", shown_name, shown_host, (int)getpid());
    if (getrandom(random, sizeof random, 0) == sizeof random) {
        int length = snprintf(owner->id, sizeof owner->id, "%s:", client);
        for (int i = 0; i < 8; i++) sprintf(owner->id + length + 2 * i, "%02x", random[i]);
        owner->net = rwlock_net_new(client, nodes);
    }
    if (owner->net != NULL) return owner;
    free(owner);
    return NULL;
}

static void free_lock(rwlock *lock) {
    free(lock->entries);
    free(lock);
}

void rwlock_owner_free(rwlock_owner *owner) {
    if (owner == NULL) return;
    for (rwlock *lock = owner->locks, *next; lock != NULL; lock = next) {
        next = lock->next;
        free_lock(lock);
    }
    for (struct hold *hold = owner->holds, *next; hold != NULL; hold = next) {
        next = hold->next;
        rwlock_net_give_back(owner->net, &hold->link);
        rwlock_hold_free(hold);
    }
    rwlock_net_free(owner->net);
    free(owner);
}

const char *rwlock_error(const rwlock_owner *owner) { return owner->error; }
long long rwlock_held_ms(const rwlock_owner *owner) { return owner->held_ms; }

/* What the owner has of the lock already: 1, or 0 and `*result` says whether to go on. */
static int enters(rwlock_owner *owner, const char *key, int write, int fence,
                  struct rwlock_entry *entry, enum rwlock_result *result) {
    for (struct hold *hold = owner->holds; hold != NULL; hold = hold->next) {
        for (int i = 0; i < hold->count; i++) {
            struct grip *grip = &hold->grips[i];
            if (strcmp(grip->key, key) != 0) continue;
            *entry = (struct rwlock_entry){hold, grip, write};
            if (rwlock_hold_poll(hold) != RWLOCK_OK)
                *result = rwlock_fail(owner, RWLOCK_NOT_HELD, key, "give the lost hold back first");
            else if (write && grip->writers == 0)
                *result = rwlock_fail(owner, RWLOCK_DEADLOCK, key,
                                      "this owner reads it: use rwlock_upgrade of that hold");
            else if (write && fence && grip->token == 0)
                *result = rwlock_fail(owner, RWLOCK_MISUSE, key,
                                      "this owner took it without a fencing token");
            return 1;
        }
    }
    return 0;
}

enum rwlock_result rwlock_acquire_all(rwlock_owner *owner, int read_count,
                                      const char *const *reads, int write_count,
                                      const char *const *writes, const rwlock_options *options,
                                      rwlock **lock) {
    int count = read_count + write_count, missing_reads = 0;
    rwlock_options wanted = options ? *options : (rwlock_options){0};
    *lock = NULL;
    if (count < 1) return rwlock_fail(owner, RWLOCK_MISUSE, "", "no lock was named");
    rwlock *got = calloc(1, sizeof *got);
    struct hold *hold = calloc(1, sizeof *hold + count * sizeof *hold->grips);
    struct rwlock_entry *entries = calloc(count, sizeof *entries);
    enum rwlock_result result = RWLOCK_OK;
    if (got == NULL || hold == NULL || entries == NULL) {
        free(got);
        free(hold);
        free(entries);
        return rwlock_fail(owner, RWLOCK_FAILED, "", "no memory");
    }
    *got = (rwlock){.owner = owner, .count = count, .entries = entries};
    hold->owner = owner;
    hold->node = -1;
    hold->session = !wanted.leased;
    hold->lease_ms = wanted.lease_ms ? wanted.lease_ms : 30000;
    for (int i = 0; i < count && result == RWLOCK_OK; i++) {
        int write = i >= read_count;
        const char *key = write ? writes[i - read_count] : reads[i];
        for (int j = 0; j < i; j++)
            if (strcmp(key, entries[j].grip->key) == 0)
                result = rwlock_fail(owner, RWLOCK_MISUSE, key, "the lock is named twice");
        if (result != RWLOCK_OK) break;
        if (enters(owner, key, write, wanted.fence, &entries[i], &result)) continue;
        struct grip *grip = &hold->grips[hold->count];
        grip->key = strdup(key);
        if (grip->key == NULL) {
            result = rwlock_fail(owner, RWLOCK_FAILED, key, "no memory");
            break;
        }
        hold->count++;
        missing_reads += !write;
        entries[i] = (struct rwlock_entry){hold, grip, write};
    }
    int entered_all = hold->count == 0;
    if (result == RWLOCK_OK && !entered_all)
        result = rwlock_hold_acquire(hold, missing_reads, &wanted);
    if (result != RWLOCK_OK || entered_all) rwlock_hold_free(hold);
    if (result != RWLOCK_OK) {
        free_lock(got);
        return result;
    }
    for (int i = 0; i < count; i++) {
        if (entries[i].write) entries[i].grip->writers++;
        else entries[i].grip->readers++;
        if (got->token == 0 && entries[i].write) got->token = entries[i].grip->token;
    }
    got->next = owner->locks;
    owner->locks = *lock = got;
    return RWLOCK_OK;
}

enum rwlock_result rwlock_acquire(rwlock_owner *owner, const char *key, enum rwlock_kind kind,
                                  const rwlock_options *options, rwlock **lock) {
    int write = kind == RWLOCK_WRITE;
    return rwlock_acquire_all(owner, !write, &key, write, &key, options, lock);
}

long long rwlock_token(const rwlock *lock, const char *key) {
    for (int i = 0; i < lock->count; i++)
        if (lock->entries[i].write && strcmp(lock->entries[i].grip->key, key) == 0)
            return lock->entries[i].grip->token;
    return 0;
}

enum rwlock_result rwlock_poll(rwlock *lock) {
    enum rwlock_result result = RWLOCK_OK;
    for (int i = 0; i < lock->count && result == RWLOCK_OK; i++)
        result = rwlock_hold_poll(lock->entries[i].hold);
    return result;
}

int rwlock_fd(const rwlock *lock) {
    const struct hold *hold = lock->entries[0].hold;
    return hold->link == NULL ? -1 : rwlock_link_fd(hold->link);
}

enum rwlock_result rwlock_check(rwlock *lock) {
    enum rwlock_result result = RWLOCK_OK;
    for (int i = 0; i < lock->count && result == RWLOCK_OK; i++)
        if (i == 0 || lock->entries[i].hold != lock->entries[i - 1].hold)
            result = rwlock_hold_check(lock->entries[i].hold);
    return result;
}

enum rwlock_result rwlock_upgrade(rwlock *lock, const rwlock_options *options) {
    struct rwlock_entry *entry = lock->entries;
    struct hold *hold = entry->hold;
    struct grip *grip = entry->grip;
    if (lock->count > 1 || entry->write)
        return rwlock_fail(lock->owner, RWLOCK_MISUSE, grip->key, "not one lock that is read");
    if (grip->writers == 0) {
        enum rwlock_result result = rwlock_hold_upgrade(hold, grip, options);
        if (result != RWLOCK_OK) return result;
    }
    grip->readers--;
    grip->writers++;
    entry->write = 1;
    lock->token = grip->token;
    return RWLOCK_OK;
}

enum rwlock_result rwlock_downgrade(rwlock *lock) {
    struct rwlock_entry *entry = lock->entries;
    struct grip *grip = entry->grip;
    if (lock->count > 1 || !entry->write)
        return rwlock_fail(lock->owner, RWLOCK_MISUSE, grip->key, "not one lock that is written");
    if (grip->writers == 1) {
        enum rwlock_result result = rwlock_hold_downgrade(entry->hold, grip);
        if (result != RWLOCK_OK) return result;
    }
    grip->writers--;
    grip->readers++;
    entry->write = 0;
    lock->token = 0;
    return RWLOCK_OK;
}

/* The last one out gives the locks of a hold back. */
static enum rwlock_result leave(struct hold *hold, const rwlock *lock) {
    int used = 0;
    enum rwlock_result result = RWLOCK_OK;
    for (int i = 0; i < hold->count; i++) used += hold->grips[i].readers + hold->grips[i].writers;
    if (used == 0) return rwlock_hold_end(hold);
    if (hold->lost)
        return rwlock_fail(hold->owner, RWLOCK_NOT_HELD, hold->grips[0].key, "the hold was lost");
    for (int i = 0; i < lock->count && result == RWLOCK_OK; i++) {
        const struct rwlock_entry *entry = &lock->entries[i];
        if (entry->hold != hold || !entry->write) continue;
        if (entry->grip->writers == 0 && entry->grip->readers > 0)
            result = rwlock_hold_downgrade(hold, entry->grip);
    }
    return result;
}

enum rwlock_result rwlock_release(rwlock **at) {
    rwlock *lock = *at;
    enum rwlock_result result = RWLOCK_OK;
    if (lock == NULL) return RWLOCK_GIVEN_BACK;
    *at = NULL;
    rwlock **link = &lock->owner->locks;
    while (*link != lock) link = &(*link)->next;
    *link = lock->next;
    for (int i = 0; i < lock->count; i++) {
        if (lock->entries[i].write) lock->entries[i].grip->writers--;
        else lock->entries[i].grip->readers--;
    }
    for (int i = 0; i < lock->count; i++) {
        struct hold *hold = lock->entries[i].hold;
        int seen = 0;
        for (int j = 0; j < i; j++) seen |= lock->entries[j].hold == hold;
        if (seen) continue;
        enum rwlock_result left = leave(hold, lock);
        if (left != RWLOCK_OK) result = left;
    }
    free_lock(lock);
    return result;
}
