/* The read/write locks of the rwlock module, with hiredis. */
#ifndef RWLOCK_H
#define RWLOCK_H

#include <hiredis/hiredis.h>

enum rwlock_result {
    RWLOCK_OK = 0,
    RWLOCK_TIMED_OUT, /* not granted in time */
    RWLOCK_NOT_HELD,  /* it was lost before: somebody else may have worked meanwhile */
    RWLOCK_DEADLOCK,  /* waiting would never end: give back what you hold, begin again */
    RWLOCK_REENTRY,   /* this owner has the lock already: hand it on */
    RWLOCK_FAILED     /* anything else: see rwlock_error */
};

enum rwlock_kind { RWLOCK_READ, RWLOCK_WRITE };

/* Who holds locks: one thread at a time. It has a connection of its own, because a
 * command that waits blocks its connection, and a session lives as long as it. */
typedef struct rwlock_owner rwlock_owner;

/* A lock that is held. `token` is the fencing token, if one was asked for. */
typedef struct rwlock {
    long long token;
    /* The rest is for the functions below. */
    rwlock_owner *owner;
    struct rwlock *next;
    char *key;
    enum rwlock_kind kind;
    int session;
    long long lease_ms;
    long long valid_till;
} rwlock;

typedef struct rwlock_options {
    long long wait_ms;  /* how long to wait at most; 0: for ever */
    long long lease_ms; /* how long the lock outlives a crash; 0: 30,000 */
    int leased;         /* no session: it is for you to call rwlock_renew in time */
    int fence;          /* for writers: hand out a fencing token */
} rwlock_options;

/* `nodes`: "host:port", or several with commas: those that a failover may make the
 * primary, or some nodes of a cluster. NULL: no memory, or not such a list.
 * Connections are made when they are needed. */
rwlock_owner *rwlock_owner_new(const char *nodes);

/* Ends the connections, and with them the session locks. */
void rwlock_owner_free(rwlock_owner *owner);

/* Takes a lock. `options` may be NULL. On RWLOCK_OK `*lock` is the lock. */
enum rwlock_result rwlock_acquire(rwlock_owner *owner, const char *key, enum rwlock_kind kind,
                                  const rwlock_options *options, rwlock **lock);

/* Gives a lock back and frees it, whatever it returns. */
enum rwlock_result rwlock_release(rwlock *lock);

/* Makes the lease last again as long, or, for a session lock, asks whether it is
 * still held. With a lease, call it every third of it. */
enum rwlock_result rwlock_renew(rwlock *lock);

/* What the last RWLOCK_FAILED, or other error, was about. */
const char *rwlock_error(const rwlock_owner *owner);

#endif
