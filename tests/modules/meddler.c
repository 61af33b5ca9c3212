/* A module that meddles: whenever a key event of a given name comes, it calls
 * a command, right in the notification. Its arguments: the name of the event,
 * and the command with its arguments.
 *
 * Only the few functions of the module API that it takes are declared here. */

#include <stddef.h>
#include <string.h>

typedef struct Ctx Ctx;
typedef struct String String;
typedef struct Reply Reply;
typedef int (*Notified)(Ctx *, int, const char *, String *);

static int (*GetApi)(const char *, void *);
static int (*SetModuleAttribs)(Ctx *, const char *, int, int);
static int (*SubscribeToKeyspaceEvents)(Ctx *, int, Notified);
static const char *(*StringPtrLen)(const String *, size_t *);
static void (*RetainString)(Ctx *, String *);
static Reply *(*Call)(Ctx *, const char *, const char *, ...);
static void (*FreeCallReply)(Reply *);

enum { EVERY_EVENT = (1 << 14) - 1, MOST_WORDS = 16 };

static String *event, *words[MOST_WORDS];
static size_t count;

static int notified(Ctx *ctx, int kind, const char *name, String *key) {
    (void)kind, (void)key;
    if (strcmp(name, StringPtrLen(event, NULL)) == 0) {
        Reply *reply = Call(ctx, StringPtrLen(words[0], NULL), "!v", words + 1, count - 1);
        if (reply != NULL) FreeCallReply(reply);
    }
    return 0;
}

static int find(const char *name, void *function) {
    return GetApi(name, function) == 0;
}

int RedisModule_OnLoad(Ctx *ctx, String **argv, int argc) {
    /* How every module comes by the API: it stands first in the context. */
    memcpy(&GetApi, ctx, sizeof GetApi);
    if (!find("RedisModule_SetModuleAttribs", &SetModuleAttribs)
        || !find("RedisModule_SubscribeToKeyspaceEvents", &SubscribeToKeyspaceEvents)
        || !find("RedisModule_StringPtrLen", &StringPtrLen)
        || !find("RedisModule_RetainString", &RetainString)
        || !find("RedisModule_Call", &Call)
        || !find("RedisModule_FreeCallReply", &FreeCallReply)
        || argc < 2 || argc - 1 > MOST_WORDS)
        return 1;
    SetModuleAttribs(ctx, "meddler", 1, 1);
    event = argv[0];
    count = (size_t)argc - 1;
    for (int i = 0; i < argc; i++) {
        RetainString(ctx, argv[i]);
        if (i > 0) words[i - 1] = argv[i];
    }
    return SubscribeToKeyspaceEvents(ctx, EVERY_EVENT, notified);
}
