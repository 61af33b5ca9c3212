#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "rwlock_internal.h"

enum { MAX_NODES = 64 };

struct rwlock_link {
    redisContext *connection;
    int node;
    int reused; /* it was idle before: the server may have closed it since */
    struct rwlock_link *next;
};

struct rwlock_net {
    char *client; /* the name of the connections */
    char error[512];
    struct {
        char *host;
        int port;
    } nodes[MAX_NODES]; /* those that were given, then those of MOVED */
    int node_count, seed_count;
    int current; /* the node to ask when nothing is known */
    int reached;
    struct rwlock_link *idle;
};

long long rwlock_now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

/* Finds or adds "host:port". -1: it is no such thing, or there are too many. */
static int node_at(struct rwlock_net *net, const char *address, size_t length) {
    const char *colon = memrchr(address, ':', length);
    if (colon == NULL || net->node_count == MAX_NODES) return -1;
    int host_length = (int)(colon - address), port = atoi(colon + 1);
    if (host_length == 0 || port < 1 || port > 65535) return -1;
    for (int i = 0; i < net->node_count; i++) {
        if (net->nodes[i].port == port && (int)strlen(net->nodes[i].host) == host_length &&
            memcmp(net->nodes[i].host, address, host_length) == 0)
            return i;
    }
    char *host = strndup(address, host_length);
    if (host == NULL) return -1;
    net->nodes[net->node_count].host = host;
    net->nodes[net->node_count].port = port;
    return net->node_count++;
}

struct rwlock_net *rwlock_net_new(const char *client, const char *nodes) {
    struct rwlock_net *net = calloc(1, sizeof *net);
    if (net == NULL) return NULL;
    net->client = strdup(client);
    int good = net->client != NULL && *nodes != '\0';
    while (good && *nodes != '\0') {
        size_t length = strcspn(nodes, ",");
        good = node_at(net, nodes, length) >= 0;
        nodes += length + (nodes[length] == ',');
    }
    net->seed_count = net->node_count;
    if (good) return net;
    rwlock_net_free(net);
    return NULL;
}

static void hang_up(struct rwlock_link **link) {
    if (*link == NULL) return;
    if ((*link)->connection != NULL) redisFree((*link)->connection);
    free(*link);
    *link = NULL;
}

static void forget_idle(struct rwlock_net *net, int node) {
    for (struct rwlock_link **at = &net->idle; *at != NULL;) {
        struct rwlock_link *link = *at;
        if (node >= 0 && link->node != node) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        hang_up(&link);
    }
}

void rwlock_net_free(struct rwlock_net *net) {
    if (net == NULL) return;
    forget_idle(net, -1);
    for (int i = 0; i < net->node_count; i++) free(net->nodes[i].host);
    free(net->client);
    free(net);
}

const char *rwlock_net_error(const struct rwlock_net *net) { return net->error; }
int rwlock_net_count(const struct rwlock_net *net) { return net->seed_count; }
int rwlock_net_reached(const struct rwlock_net *net) { return net->reached; }
int rwlock_link_fd(const struct rwlock_link *link) { return link->connection->fd; }

int rwlock_link_is_open(const struct rwlock_link *link) {
    char byte;
    ssize_t got = recv(link->connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    /* Nothing is expected but the end. */
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

void rwlock_net_give_back(struct rwlock_net *net, struct rwlock_link **link) {
    if (*link == NULL) return;
    (*link)->reused = 1;
    (*link)->next = net->idle;
    net->idle = *link;
    *link = NULL;
}

/* The server of the link does not serve. Later requests ask the next address. */
static enum rwlock_answer gone(struct rwlock_net *net, struct rwlock_link **link, int *node) {
    int failed = (*link)->node;
    enum rwlock_answer answer = (*link)->reused ? RETRY : BROKEN;
    hang_up(link);
    forget_idle(net, failed);
    if (net->current == failed) net->current = (failed + 1) % net->seed_count;
    *node = -1;
    return answer;
}

/* NULL: the connection is broken, or the time is over. */
static redisReply *say(redisContext *connection, long long limit_ms, int argc, const char **argv) {
    struct timeval limit = {limit_ms / 1000, limit_ms % 1000 * 1000};
    if (redisSetTimeout(connection, limit) != REDIS_OK) return NULL;
    /* To write to a connection that is closed would end the process. */
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    redisReply *reply = redisCommandArgv(connection, argc, argv, NULL);
    sigtimedwait(&pipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return reply;
}

static void note(struct rwlock_net *net, int node, const char *why) {
    snprintf(net->error, sizeof net->error, "%s:%d: %s", net->nodes[node].host,
             net->nodes[node].port, why);
}

enum rwlock_answer rwlock_net_link(struct rwlock_net *net, struct rwlock_link **link, int *node,
                                   long long limit_ms) {
    if (*link != NULL) return ANSWERED;
    if (*node < 0) *node = net->current;
    for (struct rwlock_link **at = &net->idle; *at != NULL; at = &(*at)->next) {
        if ((*at)->node != *node) continue;
        *link = *at;
        *at = (*link)->next;
        return ANSWERED;
    }
    long long end = rwlock_now_ms() + limit_ms;
    struct timeval limit = {limit_ms / 1000, limit_ms % 1000 * 1000};
    *link = calloc(1, sizeof **link);
    if (*link == NULL) {
        note(net, *node, "no memory");
        return BROKEN;
    }
    (*link)->node = *node;
    redisContext *connection =
        redisConnectWithTimeout(net->nodes[*node].host, net->nodes[*node].port, limit);
    (*link)->connection = connection;
    if (connection == NULL || connection->err != 0) {
        note(net, *node, connection ? connection->errstr : "no memory");
        return gone(net, link, node);
    }
    net->reached = 1;
    fcntl(connection->fd, F_SETFD, FD_CLOEXEC); /* a program that is started gets no copy of it */
    redisEnableKeepAlive(connection); /* a server that is gone is noticed in half a minute */
    long long left = end - rwlock_now_ms();
    const char *argv[] = {"CLIENT", "SETNAME", net->client};
    redisReply *reply = say(connection, left > 1 ? left : 1, 3, argv);
    if (reply == NULL) {
        note(net, *node, connection->errstr);
        return gone(net, link, node);
    }
    freeReplyObject(reply); /* an error: it may not name itself, and locks all the same */
    return ANSWERED;
}

static int begins(const char *text, const char *const *words) {
    for (; *words != NULL; words++)
        if (strncmp(text, *words, strlen(*words)) == 0) return 1;
    return 0;
}

enum rwlock_answer rwlock_net_ask(struct rwlock_net *net, struct rwlock_link **link, int *node,
                                  long long limit_ms, int argc, const char **argv,
                                  redisReply **reply) {
    static const char *const moved[] = {"MOVED ", NULL};
    static const char *const other[] = {"READONLY ", "LOADING ", "MASTERDOWN ", NULL};
    static const char *const later[] = {"UNBLOCKED ", "TRYAGAIN ", "ASK ", "CLUSTERDOWN ", NULL};
    enum rwlock_answer answer = rwlock_net_link(net, link, node, limit_ms);
    *reply = NULL;
    if (answer != ANSWERED) return answer;
    *reply = say((*link)->connection, limit_ms, argc, argv);
    if (*reply == NULL) {
        note(net, (*link)->node, (*link)->connection->errstr);
        return gone(net, link, node);
    }
    if ((*reply)->type != REDIS_REPLY_ERROR) return ANSWERED;
    note(net, (*link)->node, (*reply)->str);
    if (begins((*reply)->str, moved)) {
        const char *address = strrchr((*reply)->str, ' ') + 1;
        int to = node_at(net, address, strlen(address));
        hang_up(link);
        *node = to;
        answer = to < 0 ? UNREADY : RETRY;
    } else if (begins((*reply)->str, other)) {
        gone(net, link, node);
        answer = UNREADY;
    } else if (begins((*reply)->str, later)) {
        answer = LATER;
    } else {
        return ANSWERED;
    }
    freeReplyObject(*reply);
    *reply = NULL;
    return answer;
}
