/* On the server at RWLOCK_URL, which has to be the test's alone: it is demoted for a
 * moment. Another client is a process of its own. "row" is the row in the table of
 * examples/README.md. Starts servers of its own: RWLOCK_SERVER with RWLOCK_MODULE. */
#include <dirent.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rwlock.h"

static char address[300], key[64], second[80], module[4096];
static redisContext *server;

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

/* Looks every 5 ms until it is so, for at most 10 s. */
#define UNTIL(condition)                                             \
    do {                                                             \
        for (int i = 0; i < 2000 && !(condition); i++) usleep(5000); \
        CHECK(condition);                                            \
    } while (0)

static const rwlock_options soon = {.wait_ms = 20000};
static const rwlock_options second_long = {.wait_ms = 1000};
static const rwlock_options fenced = {.fence = 1};
static const rwlock_options leased = {.leased = 1, .lease_ms = 300};

static long long now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

static redisReply *value(redisReply *map, const char *name) {
    for (size_t i = 0; i + 1 < map->elements; i += 2)
        if (strcmp(map->element[i]->str, name) == 0) return map->element[i + 1];
    CHECK(!"the name is there");
    return NULL;
}

static redisReply *inspect(const char *lock) {
    redisReply *seen = redisCommand(server, "RWLOCK.INSPECT %s", lock);
    CHECK(seen != NULL && seen->type == REDIS_REPLY_ARRAY);
    return seen;
}

static int mode_is(const char *lock, const char *mode) {
    redisReply *seen = inspect(lock);
    int same = strcmp(value(seen, "mode")->str, mode) == 0;
    freeReplyObject(seen);
    return same;
}

/* A number of the one waiter ("waiters", "client"), or of the one holder. 0: none. */
static long long of_one(const char *lock, const char *list, const char *name) {
    redisReply *seen = inspect(lock);
    redisReply *those = value(seen, list);
    long long found = those->elements == 1 ? value(those->element[0], name)->integer : 0;
    freeReplyObject(seen);
    return found;
}

/* The client that waits, when another one does than before. */
static long long waiter(const char *lock, long long other_than) {
    long long id;
    UNTIL((id = of_one(lock, "waiters", "client")) != 0 && id != other_than);
    return id;
}

static rwlock_owner *owner_of(const char *nodes) {
    rwlock_owner *new = rwlock_owner_new("the test\n", nodes);
    CHECK(new != NULL);
    return new;
}

static rwlock_owner *owner(void) { return owner_of(address); }

static enum rwlock_result try(rwlock_owner *me, const char *lock, enum rwlock_kind kind,
                              rwlock_options options) {
    rwlock *got;
    enum rwlock_result result = rwlock_acquire(me, lock, kind, &options, &got);
    if (got != NULL) rwlock_release(&got);
    return result;
}

static rwlock *take(rwlock_owner *me, const char *lock, enum rwlock_kind kind,
                    rwlock_options options) {
    rwlock *got;
    enum rwlock_result result = rwlock_acquire(me, lock, kind, &options, &got);
    if (result != RWLOCK_OK) fprintf(stderr, "%d %s\n", result, rwlock_error(me));
    CHECK(result == RWLOCK_OK);
    return got;
}

static rwlock *write_lock(rwlock_owner *me, const char *lock) {
    return take(me, lock, RWLOCK_WRITE, (rwlock_options){0});
}

/* Another process that takes the lock and gives it back. */
static pid_t other(rwlock_options options) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    rwlock *lock = take(owner(), key, RWLOCK_WRITE, options);
    _exit(rwlock_release(&lock) != RWLOCK_OK);
}

static int ended_well(pid_t pid) {
    int status;
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static long long command(redisContext *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(to, format, arguments);
    va_end(arguments);
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
        fprintf(stderr, "%s: %s\n", format, reply ? reply->str : to->errstr);
    CHECK(reply != NULL && reply->type != REDIS_REPLY_ERROR);
    long long number = reply->integer;
    freeReplyObject(reply);
    return number;
}

static void force_unlock(const char *lock) {
    CHECK(command(server, "RWLOCK.FORCEUNLOCK %s", lock) == 1);
}

/* A server of one test's own. */
static struct {
    pid_t pid;
    int port;
    char folder[64], address[64];
} own;

static redisContext *connect_own(void) {
    redisContext *to;
    for (int i = 0; i < 2000; i++) {
        to = redisConnect("127.0.0.1", own.port);
        redisReply *reply = to->err ? NULL : redisCommand(to, "INFO");
        int up = reply != NULL && reply->type != REDIS_REPLY_ERROR;
        if (reply != NULL) freeReplyObject(reply);
        if (up) return to;
        redisFree(to);
        usleep(5000); /* between two looks */
    }
    CHECK(!"the server answers");
    return NULL;
}

/* `slow`: it loads its data for some 20 s. */
static redisContext *start_own(int with_module, int slow) {
    char port[16];
    const char *program = getenv("RWLOCK_SERVER");
    if (own.port == 0) {
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof any;
        int probe = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(bind(probe, (struct sockaddr *)&any, size) == 0);
        CHECK(getsockname(probe, (struct sockaddr *)&any, &size) == 0);
        own.port = ntohs(any.sin_port);
        close(probe);
        strcpy(own.folder, "/tmp/rwlock-c.XXXXXX");
        CHECK(mkdtemp(own.folder) != NULL);
        snprintf(own.address, sizeof own.address, "127.0.0.1:%d", own.port);
    }
    snprintf(port, sizeof port, "%d", own.port);
    const char *argv[20] = {program ? program : "redis-server", "--port", port, "--save", "",
                            "--dir", own.folder};
    int argc = 7;
    if (with_module) argv[argc++] = "--loadmodule", argv[argc++] = module;
    if (slow) {
        argv[argc++] = "--key-load-delay", argv[argc++] = "1000";
        argv[argc++] = "--loading-process-events-interval-bytes", argv[argc++] = "1024";
    }
    own.pid = fork();
    if (own.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if the test fails */
        dup2(open("/dev/null", O_WRONLY), 1);
        execvp(argv[0], (char **)argv);
        _exit(1);
    }
    return connect_own();
}

static void kill_own(void) {
    kill(own.pid, SIGKILL);
    waitpid(own.pid, NULL, 0);
}

static void end_own(redisContext *control) {
    char dump[80];
    redisFree(control);
    kill_own();
    snprintf(dump, sizeof dump, "%s/dump.rdb", own.folder);
    unlink(dump);
    rmdir(own.folder);
    own.port = 0;
}

static void row_1(void) {
    rwlock_owner *ann = owner(), *bob = owner();
    rwlock *lock = write_lock(ann, key), *none;
    long long start = now_ms();
    CHECK(rwlock_acquire(bob, key, RWLOCK_WRITE, NULL, &none) == RWLOCK_TIMED_OUT && none == NULL);
    CHECK(try(bob, key, RWLOCK_READ, (rwlock_options){.wait_ms = 0}) == RWLOCK_TIMED_OUT);
    CHECK(now_ms() - start < 1000);
    pid_t pid = other((rwlock_options){.wait_ms = RWLOCK_FOREVER});
    waiter(key, 0);
    CHECK(of_one(key, "waiters", "timeout") == 0);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    CHECK(ended_well(pid));
    rwlock_owner_free(ann);
    rwlock_owner_free(bob);
}

static void row_2(void) {
    rwlock_owner *ann = owner();
    rwlock *lock = write_lock(ann, key);
    CHECK(of_one(key, "holders", "session") > 0);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    lock = take(ann, key, RWLOCK_WRITE, leased);
    CHECK(of_one(key, "holders", "session") == 0);
    for (int i = 0; i < 18; i++) {
        usleep(50000); /* together three times as long as the lease */
        CHECK(rwlock_poll(lock) == RWLOCK_OK);
    }
    CHECK(rwlock_check(lock) == RWLOCK_OK);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    CHECK(mode_is(key, "free"));
    rwlock_owner_free(ann);
}

static void row_3(void) {
    rwlock_owner *ann = owner(), *bob = owner();
    rwlock *outer = write_lock(ann, key), *inner = write_lock(ann, key);
    rwlock *reader = take(ann, key, RWLOCK_READ, (rwlock_options){0}), *none;
    CHECK(try(bob, key, RWLOCK_READ, (rwlock_options){0}) == RWLOCK_TIMED_OUT);
    CHECK(rwlock_release(&inner) == RWLOCK_OK && rwlock_release(&reader) == RWLOCK_OK);
    CHECK(mode_is(key, "write"));
    CHECK(rwlock_acquire(ann, key, RWLOCK_WRITE, &fenced, &none) == RWLOCK_MISUSE);
    CHECK(rwlock_release(&outer) == RWLOCK_OK);
    CHECK(mode_is(key, "free"));
    reader = take(ann, key, RWLOCK_READ, (rwlock_options){0});
    /* It would wait for itself. */
    CHECK(rwlock_acquire(ann, key, RWLOCK_WRITE, &soon, &none) == RWLOCK_DEADLOCK);
    CHECK(rwlock_release(&reader) == RWLOCK_OK);
    rwlock_owner_free(ann);
    rwlock_owner_free(bob);
}

static void row_4(void) {
    rwlock_owner *ann = owner(), *bob = owner();
    rwlock *lock = take(ann, key, RWLOCK_READ, (rwlock_options){0});
    CHECK(rwlock_upgrade(lock, &fenced) == RWLOCK_OK);
    CHECK(lock->token > 0 && mode_is(key, "write"));
    CHECK(rwlock_downgrade(lock) == RWLOCK_OK);
    CHECK(mode_is(key, "read"));
    CHECK(try(bob, key, RWLOCK_READ, (rwlock_options){0}) == RWLOCK_OK);
    CHECK(rwlock_downgrade(lock) == RWLOCK_MISUSE);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    CHECK(mode_is(key, "free"));
    for (int i = 0; i < 2; i++) {
        rwlock_options options = {.leased = i};
        lock = take(ann, key, RWLOCK_READ, options);
        pid_t pid = fork();
        if (pid == 0) {
            rwlock *reader = take(owner(), key, RWLOCK_READ, (rwlock_options){0});
            server = redisConnect(server->tcp.host, server->tcp.port);
            waiter(key, 0);
            _exit(rwlock_release(&reader) != RWLOCK_OK);
        }
        UNTIL(of_one(key, "holders", "holds") == 0); /* there are two */
        CHECK(rwlock_upgrade(lock, NULL) == RWLOCK_TIMED_OUT);
        CHECK(rwlock_check(lock) == RWLOCK_OK);
        CHECK(rwlock_upgrade(lock, &soon) == RWLOCK_OK);
        CHECK(ended_well(pid));
        CHECK(mode_is(key, "write"));
        CHECK(rwlock_release(&lock) == RWLOCK_OK);
        CHECK(mode_is(key, "free"));
    }
    /* What is left decides: the one who reads on keeps a read hold. */
    rwlock *writer = write_lock(ann, key);
    lock = take(ann, key, RWLOCK_READ, (rwlock_options){0});
    CHECK(rwlock_release(&writer) == RWLOCK_OK);
    CHECK(mode_is(key, "read"));
    CHECK(rwlock_upgrade(lock, NULL) == RWLOCK_OK);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    CHECK(mode_is(key, "free"));
    rwlock_owner_free(ann);
    rwlock_owner_free(bob);
}

static void row_5(void) {
    char third[80], fourth[80];
    snprintf(third, sizeof third, "%s:3", key);
    snprintf(fourth, sizeof fourth, "%s:4", key);
    const char *reads[] = {third}, *writes[] = {key, second}, *others[] = {fourth, key};
    rwlock_owner *ann = owner(), *bob = owner();
    rwlock *lock, *inner, *none;
    CHECK(rwlock_acquire_all(ann, 1, reads, 2, writes, &fenced, &lock) == RWLOCK_OK);
    CHECK(rwlock_token(lock, key) > 0 && rwlock_token(lock, second) > 0);
    CHECK(rwlock_token(lock, third) == 0 && lock->token == rwlock_token(lock, key));
    CHECK(rwlock_check(lock) == RWLOCK_OK);
    inner = write_lock(ann, key);
    CHECK(rwlock_release(&inner) == RWLOCK_OK);
    CHECK(try(bob, third, RWLOCK_READ, (rwlock_options){0}) == RWLOCK_OK);
    CHECK(rwlock_acquire_all(bob, 0, NULL, 2, others, NULL, &none) == RWLOCK_TIMED_OUT);
    CHECK(mode_is(fourth, "free")); /* it took none */
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    CHECK(mode_is(key, "free") && mode_is(second, "free") && mode_is(third, "free"));

    CHECK(rwlock_acquire_all(ann, 0, NULL, 2, writes, &leased, &lock) == RWLOCK_OK);
    force_unlock(key);
    UNTIL(rwlock_poll(lock) == RWLOCK_NOT_HELD);
    CHECK(rwlock_release(&lock) == RWLOCK_NOT_HELD);
    UNTIL(mode_is(second, "free"));

    const char *twice[] = {fourth, key, key};
    for (int held = 0; held < 2; held++) {
        CHECK(rwlock_acquire_all(ann, 3, twice, 0, NULL, &soon, &none) == RWLOCK_MISUSE);
        CHECK(strstr(rwlock_error(ann), "is named twice") != NULL);
        CHECK(rwlock_acquire_all(ann, 2, twice, 1, writes, &soon, &none) == RWLOCK_MISUSE);
        if (held == 0) lock = write_lock(ann, key);
    }
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    CHECK(mode_is(key, "free") && mode_is(fourth, "free"));
    rwlock_owner_free(ann);
    rwlock_owner_free(bob);
}

static void row_7(void) {
    rwlock_owner *ann = owner(), *unnamed = rwlock_owner_new(NULL, address);
    rwlock *lock = write_lock(ann, key);
    redisReply *seen = inspect(key), *clients = redisCommand(server, "CLIENT LIST");
    const char *shown = value(value(seen, "holders")->element[0], "owner")->str;
    CHECK(strncmp(shown, "the-test-@", 10) == 0 && strlen(shown) <= 200);
    char client[32];
    snprintf(client, sizeof client, "id=%lld ", of_one(key, "holders", "session"));
    const char *line = strstr(clients->str, client), *name = strstr(line, " name=the-test-@");
    CHECK(name != NULL && name < strchr(line, '\n'));
    freeReplyObject(seen);
    freeReplyObject(clients);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    lock = write_lock(unnamed, key);
    seen = inspect(key);
    shown = value(value(seen, "holders")->element[0], "owner")->str;
    CHECK(strncmp(shown, "test@", 5) == 0); /* the name of this program */
    freeReplyObject(seen);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    rwlock_owner_free(ann);
    rwlock_owner_free(unnamed);
}

static void row_8_session(void) {
    rwlock_owner *ann = owner();
    rwlock *lock = take(ann, key, RWLOCK_WRITE, (rwlock_options){.lease_ms = 60000}), *none;
    struct pollfd watch = {rwlock_fd(lock), POLLIN, 0};
    CHECK(rwlock_poll(lock) == RWLOCK_OK && poll(&watch, 1, 0) == 0);
    pid_t pid = other(soon);
    waiter(key, 0);
    command(server, "CLIENT KILL ID %lld", of_one(key, "holders", "session"));
    CHECK(poll(&watch, 1, 1000) == 1);
    CHECK(rwlock_poll(lock) == RWLOCK_NOT_HELD);
    CHECK(ended_well(pid));
    CHECK(rwlock_check(lock) == RWLOCK_NOT_HELD);
    CHECK(rwlock_acquire(ann, key, RWLOCK_WRITE, NULL, &none) == RWLOCK_NOT_HELD);
    CHECK(rwlock_release(&lock) == RWLOCK_NOT_HELD);
    lock = write_lock(ann, key);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    rwlock_owner_free(ann);
}

static void row_8_lease(void) {
    rwlock_owner *ann = owner();
    rwlock *lock = take(ann, key, RWLOCK_WRITE, leased);
    CHECK(rwlock_fd(lock) == -1);
    force_unlock(key);
    UNTIL(rwlock_poll(lock) == RWLOCK_NOT_HELD); /* at the next renewal */
    CHECK(rwlock_release(&lock) == RWLOCK_NOT_HELD);
    lock = take(ann, key, RWLOCK_WRITE, leased);
    usleep(400000); /* longer than the lease: nobody has called rwlock_poll */
    CHECK(rwlock_poll(lock) == RWLOCK_NOT_HELD);
    CHECK(rwlock_release(&lock) == RWLOCK_NOT_HELD);
    rwlock_owner_free(ann);
}

static void row_9(void) {
    redisFree(start_own(1, 0));
    rwlock_owner *ann = owner_of(own.address), *bob = owner_of(own.address);
    rwlock *lock = write_lock(ann, key);
    kill_own();
    redisContext *control = start_own(1, 0);
    rwlock *next = take(bob, key, RWLOCK_WRITE, soon);
    CHECK(rwlock_poll(lock) == RWLOCK_NOT_HELD);
    CHECK(rwlock_release(&next) == RWLOCK_OK);
    CHECK(rwlock_release(&lock) == RWLOCK_NOT_HELD);
    rwlock_owner_free(ann);
    rwlock_owner_free(bob);
    end_own(control);
}

static void times_out_after_a_second(rwlock_owner *me, const char *why) {
    rwlock *none;
    long long start = now_ms();
    CHECK(rwlock_acquire(me, key, RWLOCK_WRITE, &second_long, &none) == RWLOCK_TIMED_OUT);
    long long took = now_ms() - start;
    if (took >= 2000 || !strstr(rwlock_error(me), why))
        fprintf(stderr, "%lld ms: %s\n", took, rwlock_error(me));
    CHECK(took >= 1000 && took < 2000);
    CHECK(strstr(rwlock_error(me), why) != NULL);
    CHECK(rwlock_held_ms(me) == -2);
}

static void row_10(void) {
    redisContext *control = start_own(1, 0);
    rwlock_owner *ann = owner_of(own.address);
    CHECK(try(ann, key, RWLOCK_WRITE, (rwlock_options){0}) == RWLOCK_OK);
    command(control, "REPLICAOF 127.0.0.1 1");
    times_out_after_a_second(ann, "READONLY");
    CHECK(try(ann, key, RWLOCK_WRITE, (rwlock_options){0}) == RWLOCK_TIMED_OUT);
    command(control, "REPLICAOF NO ONE");

    kill(own.pid, SIGSTOP); /* it is there and does nothing */
    times_out_after_a_second(ann, "");
    kill(own.pid, SIGCONT);

    command(control, "EVAL %s 0",
            "for i = 1, 20000 do redis.call('SET', 'key' .. i, 'value') end");
    command(control, "SAVE");
    kill_own();
    times_out_after_a_second(ann, "");
    redisFree(control);
    control = start_own(1, 1);
    times_out_after_a_second(ann, "LOADING");
    rwlock_owner_free(ann);
    end_own(control);
}

static void row_11(void) {
    static const long long waits[] = {0, 20000, RWLOCK_FOREVER};
    char two[320];
    rwlock_owner *nobody = owner_of("127.0.0.1:1");
    for (int i = 0; i < 3; i++) {
        long long start = now_ms();
        rwlock_options options = {.wait_ms = waits[i]};
        CHECK(try(nobody, key, RWLOCK_WRITE, options) == RWLOCK_FAILED);
        CHECK(strstr(rwlock_error(nobody), "refused") != NULL);
        CHECK(now_ms() - start < 1000);
    }
    rwlock_owner_free(nobody);
    /* Of several addresses the first may be down. */
    snprintf(two, sizeof two, "127.0.0.1:1,%s", address);
    rwlock_owner *ann = owner_of(two);
    CHECK(try(ann, key, RWLOCK_WRITE, (rwlock_options){0}) == RWLOCK_OK);
    rwlock_owner_free(ann);
}

static int is_connected(const char *name) {
    redisReply *clients = redisCommand(server, "CLIENT LIST");
    int found = strstr(clients->str, name) != NULL;
    freeReplyObject(clients);
    return found;
}

static void row_12(void) {
    rwlock_owner *ann = rwlock_owner_new("row12", address);
    write_lock(ann, key);
    take(ann, second, RWLOCK_WRITE, leased);
    int threads = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) threads += task->d_name[0] != '.';
    closedir(tasks);
    CHECK(threads == 1);
    CHECK(is_connected(" name=row12@"));
    rwlock_owner_free(ann);
    UNTIL(!is_connected(" name=row12@"));
    UNTIL(mode_is(key, "free") && mode_is(second, "free"));
}

static void row_6_and_13(void) {
    rwlock_owner *ann = owner();
    rwlock *lock = write_lock(ann, key);
    CHECK(rwlock_release(&lock) == RWLOCK_OK && lock == NULL);
    CHECK(mode_is(key, "free"));
    CHECK(rwlock_release(&lock) == RWLOCK_GIVEN_BACK);
    rwlock_owner_free(ann);
}

static void row_14(void) {
    redisContext *control = start_own(0, 0);
    rwlock_owner *ann = owner_of(own.address);
    CHECK(try(ann, key, RWLOCK_WRITE, soon) == RWLOCK_NOT_LOADED);
    CHECK(strstr(rwlock_error(ann), "the rwlock module is not loaded") != NULL);
    rwlock_owner_free(ann);
    end_own(control);
}

static void row_15(void) {
    char ms[64];
    rwlock_owner *ann = owner(), *bob = owner();
    rwlock *lock = take(ann, key, RWLOCK_WRITE, (rwlock_options){.lease_ms = 60000});
    CHECK(try(bob, key, RWLOCK_WRITE, (rwlock_options){0}) == RWLOCK_TIMED_OUT);
    CHECK(rwlock_held_ms(bob) > 50000 && rwlock_held_ms(bob) <= 60000);
    snprintf(ms, sizeof ms, "ends in %lld ms, unless it is renewed", rwlock_held_ms(bob));
    CHECK(strstr(rwlock_error(bob), ms) != NULL);
    command(server, "PERSIST %s", key);
    CHECK(try(bob, key, RWLOCK_WRITE, (rwlock_options){0}) == RWLOCK_TIMED_OUT);
    CHECK(rwlock_held_ms(bob) == -1);
    CHECK(strstr(rwlock_error(bob), "without expiry") != NULL);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    rwlock_owner_free(ann);
    rwlock_owner_free(bob);
}

static void row_16(void) {
    rwlock_owner *ann = owner();
    rwlock *lock = write_lock(ann, key), *none;
    pid_t pid = fork();
    if (pid == 0) {
        rwlock_owner *bob = owner();
        take(bob, second, RWLOCK_WRITE, soon);
        take(bob, key, RWLOCK_WRITE, soon);
        _exit(0); /* the sessions end with the process */
    }
    waiter(key, 0);
    CHECK(rwlock_acquire(ann, second, RWLOCK_WRITE, &soon, &none) == RWLOCK_DEADLOCK);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    CHECK(ended_well(pid));
    rwlock_owner_free(ann);
}

static void row_17(void) {
    rwlock_owner *ann = owner(), *bob = owner(), *cat = owner();
    rwlock *a = take(ann, key, RWLOCK_READ, (rwlock_options){0});
    rwlock *b = take(bob, key, RWLOCK_READ, leased);
    CHECK(try(cat, key, RWLOCK_WRITE, (rwlock_options){.wait_ms = 20}) == RWLOCK_TIMED_OUT);
    CHECK(a->token == 0);
    CHECK(rwlock_release(&a) == RWLOCK_OK && rwlock_release(&b) == RWLOCK_OK);
    long long last = 0;
    for (int i = 0; i < 3; i++) {
        a = take(cat, key, RWLOCK_WRITE, (rwlock_options){.fence = 1, .leased = i == 1});
        CHECK(a->token > last);
        last = a->token;
        CHECK(rwlock_release(&a) == RWLOCK_OK);
    }
    rwlock_owner_free(ann);
    rwlock_owner_free(bob);
    rwlock_owner_free(cat);
}

static void a_broken_wait(void) {
    rwlock_owner *ann = owner();
    rwlock *lock = write_lock(ann, key);
    pid_t pid = other(soon);
    long long id = waiter(key, 0);
    sleep(1); /* longer than a reply may take beyond its time */
    CHECK(waiter(key, 0) == id);
    command(server, "CLIENT KILL ID %lld", id);
    waiter(key, id);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    CHECK(ended_well(pid));
    rwlock_owner_free(ann);
}

static void a_failover(void) {
    rwlock_owner *ann = owner();
    rwlock *lock = take(ann, key, RWLOCK_WRITE, (rwlock_options){.leased = 1});
    pid_t pid = other(soon);
    long long id = waiter(key, 0);
    command(server, "REPLICAOF 127.0.0.1 1");
    usleep(200000); /* for so long the server answers READONLY */
    command(server, "REPLICAOF NO ONE");
    waiter(key, id);
    CHECK(rwlock_release(&lock) == RWLOCK_OK);
    CHECK(ended_well(pid));
    rwlock_owner_free(ann);
}

static void an_idle_connection(void) {
    rwlock_owner *ann = owner();
    CHECK(try(ann, key, RWLOCK_WRITE, (rwlock_options){0}) == RWLOCK_OK);
    command(server, "CLIENT KILL TYPE normal SKIPME yes");
    CHECK(try(ann, key, RWLOCK_WRITE, (rwlock_options){0}) == RWLOCK_OK);
    rwlock_owner_free(ann);
}

int main(void) {
    static const struct {
        const char *name;
        void (*test)(void);
    } tests[] = {
        {"row 1: without a wait it tries once, and forever is said", row_1},
        {"row 2: a session is the default, and a lease is renewed", row_2},
        {"row 3: the same owner enters again", row_3},
        {"row 4: upgrade and downgrade", row_4},
        {"row 5: several locks in one step", row_5},
        {"row 6, row 13: release, and only once", row_6_and_13},
        {"row 7: the server shows the name", row_7},
        {"row 8: a lost session is told within a second", row_8_session},
        {"row 8: a lost lease is told", row_8_lease},
        {"row 9: after a restart the old holder knows", row_9},
        {"row 10: deadlines hold during a failover", row_10},
        {"row 11: a wrong port fails at once", row_11},
        {"row 12: after the owner no connection and no thread is left", row_12},
        {"row 14: a server without the module", row_14},
        {"row 15: how long the lock is still held", row_15},
        {"row 16: a deadlock is an error", row_16},
        {"row 17: readers share, and tokens increase", row_17},
        {"a wait goes on after the connection broke", a_broken_wait},
        {"a wait and a lease outlive a failover", a_failover},
        {"a connection that was closed while idle costs no try", an_idle_connection},
    };
    char host[256];
    int port;
    const char *url = getenv("RWLOCK_URL"), *given = getenv("RWLOCK_MODULE");
    CHECK(url != NULL && sscanf(url, "redis://%255[^:]:%d", host, &port) == 2);
    snprintf(address, sizeof address, "%s:%d", host, port);
    server = redisConnect(host, port);
    CHECK(server != NULL && server->err == 0);
    redisReply *modules = redisCommand(server, "MODULE LIST");
    CHECK(given != NULL || modules->elements > 0);
    snprintf(module, sizeof module, "%s",
             given != NULL ? given : value(modules->element[0], "path")->str);
    freeReplyObject(modules);
    alarm(180);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        snprintf(key, sizeof key, "c:%d:%zu", (int)getpid(), i);
        snprintf(second, sizeof second, "%s:2", key);
        tests[i].test();
        printf("ok  %s\n", tests[i].name);
        fflush(stdout);
    }
    redisFree(server);
    return 0;
}
