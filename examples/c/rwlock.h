/* Read/write locks of a Redis or Valkey server with the rwlock module, for hiredis.
 *
 *     rwlock_owner *me = rwlock_owner_new("nightly-report", "127.0.0.1:6379");
 *     rwlock *lock;
 *     if (rwlock_acquire(me, "orders", RWLOCK_WRITE, NULL, &lock) == RWLOCK_OK) {
 *         save(order);
 *         rwlock_release(&lock);
 *     }
 *     rwlock_owner_free(me);
 */
#ifndef RWLOCK_H
#define RWLOCK_H

#define RWLOCK_FOREVER (-1LL)

enum rwlock_result {
    RWLOCK_OK = 0,
    RWLOCK_TIMED_OUT,  /* not granted in time: see rwlock_held_ms */
    RWLOCK_NOT_HELD,   /* it was lost before: somebody else may have worked meanwhile */
    RWLOCK_DEADLOCK,   /* waiting would never end: give back what you hold, begin again */
    RWLOCK_GIVEN_BACK, /* the hold was given back already */
    RWLOCK_NOT_LOADED, /* the server has not loaded the rwlock module */
    RWLOCK_MISUSE,     /* the call does not fit what the owner holds */
    RWLOCK_FAILED      /* anything else: see rwlock_error */
};

enum rwlock_kind { RWLOCK_READ, RWLOCK_WRITE };

/* The holder of locks, for one thread at a time. It may enter a lock again that it has.
 * Deadlocks are found by owner. It starts no thread. */
typedef struct rwlock_owner rwlock_owner;

/* One or several locks that are held. `token` is the fencing token of the first write
 * lock, if tokens were asked for. */
typedef struct rwlock {
    long long token;
    /* The rest is for the functions below. */
    rwlock_owner *owner;
    struct rwlock *next;
    int count;
    struct rwlock_entry *entries;
} rwlock;

typedef struct rwlock_options {
    long long wait_ms;  /* how long to wait at most; 0: try once; RWLOCK_FOREVER */
    long long lease_ms; /* how long it outlives what keeps it alive; 0: 30,000 */
    int leased;         /* no session: call rwlock_poll at least every third of the lease */
    int fence;          /* hand out a fencing token for each write lock */
} rwlock_options;

/* `name` of this program: the server shows it beside holds, waits and connections. NULL:
 * the name of its file. `nodes`: "host:port", or several with commas: those that a
 * failover may make the primary, or some nodes of a cluster. Connections are made when
 * they are needed. Returns NULL when there is no memory or `nodes` is no such list. */
rwlock_owner *rwlock_owner_new(const char *name, const char *nodes);

/* Ends the connections, and with them the sessions. Frees the locks of this owner. */
void rwlock_owner_free(rwlock_owner *owner);

/* Takes a lock. `options` may be NULL: try once. On RWLOCK_OK `*lock` is the lock, else
 * NULL. */
enum rwlock_result rwlock_acquire(rwlock_owner *owner, const char *key, enum rwlock_kind kind,
                                  const rwlock_options *options, rwlock **lock);

/* Takes all these locks in one step, or none. In a cluster they have to be in one slot. */
enum rwlock_result rwlock_acquire_all(rwlock_owner *owner, int read_count,
                                      const char *const *reads, int write_count,
                                      const char *const *writes, const rwlock_options *options,
                                      rwlock **lock);

/* The fencing token of a write lock. 0 if none was asked for. */
long long rwlock_token(const rwlock *lock, const char *key);

/* Whether it is still held: RWLOCK_OK or RWLOCK_NOT_HELD. Looks at the connection of a
 * session. Renews a lease when a third of it has passed. */
enum rwlock_result rwlock_poll(rwlock *lock);

/* The socket of a session, for poll or epoll: it becomes readable when the hold is lost.
 * -1: there is none. */
int rwlock_fd(const rwlock *lock);

/* Asks the server whether it is still held, and renews it. */
enum rwlock_result rwlock_check(rwlock *lock);

/* From reading to writing without a gap, and back. Of the options count `wait_ms` and
 * `fence`. */
enum rwlock_result rwlock_upgrade(rwlock *lock, const rwlock_options *options);
enum rwlock_result rwlock_downgrade(rwlock *lock);

/* Gives it back, and sets `*lock` to NULL, whatever it returns. */
enum rwlock_result rwlock_release(rwlock **lock);

/* What the last result other than RWLOCK_OK was about. */
const char *rwlock_error(const rwlock_owner *owner);

/* After RWLOCK_TIMED_OUT: in how many ms the lease ends, unless it is renewed. 0: others
 * are ahead in its queue. -1: it has no expiry. -2: no server was ready. */
long long rwlock_held_ms(const rwlock_owner *owner);

#endif
