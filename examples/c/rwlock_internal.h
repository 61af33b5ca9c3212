/* What rwlock.c, rwlock_hold.c and rwlock_net.c know of each other. */
#ifndef RWLOCK_INTERNAL_H
#define RWLOCK_INTERNAL_H

#include <hiredis/hiredis.h>

#include "rwlock.h"

/* The servers that locks may be on, and the connections that are free. */
struct rwlock_net;

/* A connection that one hold or one wait uses at a time. */
struct rwlock_link;

enum rwlock_answer {
    ANSWERED, /* there is a reply */
    LATER,    /* ask again after a pause */
    /* The link is closed, and a session on it has ended: */
    UNREADY, /* the server does not serve now */
    BROKEN,  /* the server was not reached, or did not answer in time */
    RETRY    /* another connection or another node will do at once */
};

struct rwlock_net *rwlock_net_new(const char *client, const char *nodes);
void rwlock_net_free(struct rwlock_net *net);
const char *rwlock_net_error(const struct rwlock_net *net);

/* How many addresses were given, and whether any was ever connected. If not, they may be
 * wrong. */
int rwlock_net_count(const struct rwlock_net *net);
int rwlock_net_reached(const struct rwlock_net *net);

/* Sees to it that there is a link, within so many ms. `*node` is the node to ask, -1: any. */
enum rwlock_answer rwlock_net_link(struct rwlock_net *net, struct rwlock_link **link, int *node,
                                   long long limit_ms);

/* Sends a command, and waits so many ms for the reply. 0: without end. Closes the link
 * and sets it to NULL when its server is gone. */
enum rwlock_answer rwlock_net_ask(struct rwlock_net *net, struct rwlock_link **link, int *node,
                                  long long limit_ms, int argc, const char **argv,
                                  redisReply **reply);

void rwlock_net_give_back(struct rwlock_net *net, struct rwlock_link **link);

/* Whether the server keeps the connection open. Sends nothing. */
int rwlock_link_is_open(const struct rwlock_link *link);
int rwlock_link_fd(const struct rwlock_link *link);

long long rwlock_now_ms(void);

/* A lock of a hold, and how often its owner entered it. */
struct grip {
    char *key;
    int readers, writers;
    long long token;
};

/* What the server knows of: the locks that the owner took in one step. */
struct hold {
    rwlock_owner *owner;
    struct hold *next;
    struct rwlock_link *link; /* of a session */
    int node;
    int session, lost;
    long long lease_ms, renewed, valid_till;
    int count;
    struct grip grips[];
};

struct rwlock_entry {
    struct hold *hold;
    struct grip *grip;
    int write;
};

struct rwlock_owner {
    char id[201];
    char error[1024];
    long long held_ms;
    struct rwlock_net *net;
    struct hold *holds;
    rwlock *locks;
};

enum rwlock_result rwlock_fail(rwlock_owner *owner, enum rwlock_result result, const char *key,
                               const char *why);

/* Each of these asks the server. The first `reads` locks of the hold are to read, the
 * others to write. */
enum rwlock_result rwlock_hold_acquire(struct hold *hold, int reads, const rwlock_options *wanted);
enum rwlock_result rwlock_hold_upgrade(struct hold *hold, struct grip *grip,
                                       const rwlock_options *options);
enum rwlock_result rwlock_hold_downgrade(struct hold *hold, struct grip *grip);
enum rwlock_result rwlock_hold_check(struct hold *hold);

/* Gives the locks back, and frees the hold. */
enum rwlock_result rwlock_hold_end(struct hold *hold);

/* Looks whether it is lost, and renews a lease in time. */
enum rwlock_result rwlock_hold_poll(struct hold *hold);

void rwlock_hold_free(struct hold *hold);

#endif
