/* Loads the module under test as if it were this one, and makes it panic where a test says.
 *
 * A Rust module reads each function of the module API from a variable, and panics when the
 * variable is empty. This module stands between: it knows the variables, counts the calls,
 * and empties all variables before the call that shall panic. The panic is logged first of
 * all; then they are filled again. So the library under test is the one that is shipped.
 *
 * The arguments: the library, then its own arguments. The commands:
 *   INJECTOR.ARM <n>   n calls succeed, the next one panics
 *   INJECTOR.DISARM    the number of panics so far; no more follow
 *
 * Only the few functions of the module API that it takes are declared here. */

#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct Ctx Ctx;
typedef struct String String;
typedef int (*Command)(Ctx *, String **, int);
typedef void (*Function)(void);

static int (*GetApi)(const char *, void *);
static int (*CreateCommand)(Ctx *, const char *, Command, const char *, int, int, int);
static int (*ReplyWithLongLong)(Ctx *, long long);
static int (*StringToLongLong)(const String *, long long *);
static void (*Log)(Ctx *, const char *, const char *, ...);

enum { MOST = 512, THUNK = 16 };

/* A function of the API: where the module under test keeps it, and where it is. */
static struct { Function *variable, function; } functions[MOST];
static size_t count;

static void *library;
static long long left = -1, panics;

/* Thunk i passes on to function i, whatever its arguments, after `counted(i)`. */
void injector_thunks(void);
#if defined(__x86_64__)
__asm__(".text\n.p2align 4\n.globl injector_thunks\n.hidden injector_thunks\n"
        "injector_thunks:\n"
        ".set i, 0\n.rept 512\n.p2align 4\n"
        "movl $i, %r11d\njmp injector_pass\n.set i, i + 1\n.endr\n"
        "injector_pass:\n"
        "push %rax\npush %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\n"
        "sub $128, %rsp\n"
        "movups %xmm0, (%rsp)\nmovups %xmm1, 16(%rsp)\nmovups %xmm2, 32(%rsp)\n"
        "movups %xmm3, 48(%rsp)\nmovups %xmm4, 64(%rsp)\nmovups %xmm5, 80(%rsp)\n"
        "movups %xmm6, 96(%rsp)\nmovups %xmm7, 112(%rsp)\n"
        "movq %r11, %rdi\ncall injector_counted\nmovq %rax, %r11\n"
        "movups (%rsp), %xmm0\nmovups 16(%rsp), %xmm1\nmovups 32(%rsp), %xmm2\n"
        "movups 48(%rsp), %xmm3\nmovups 64(%rsp), %xmm4\nmovups 80(%rsp), %xmm5\n"
        "movups 96(%rsp), %xmm6\nmovups 112(%rsp), %xmm7\n"
        "add $128, %rsp\n"
        "pop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\npop %rax\n"
        "jmp *%r11\n");
#elif defined(__aarch64__)
__asm__(".text\n.p2align 4\n.globl injector_thunks\n.hidden injector_thunks\n"
        "injector_thunks:\n"
        ".set i, 0\n.rept 512\n.p2align 4\n"
        "mov x16, #i\nb injector_pass\n.set i, i + 1\n.endr\n"
        "injector_pass:\n"
        "stp x29, x30, [sp, #-208]!\n"
        "stp x0, x1, [sp, #16]\nstp x2, x3, [sp, #32]\nstp x4, x5, [sp, #48]\n"
        "stp x6, x7, [sp, #64]\n"
        "stp q0, q1, [sp, #80]\nstp q2, q3, [sp, #112]\nstp q4, q5, [sp, #144]\n"
        "stp q6, q7, [sp, #176]\n"
        "mov x0, x16\nbl injector_counted\nmov x16, x0\n"
        "ldp q0, q1, [sp, #80]\nldp q2, q3, [sp, #112]\nldp q4, q5, [sp, #144]\n"
        "ldp q6, q7, [sp, #176]\n"
        "ldp x0, x1, [sp, #16]\nldp x2, x3, [sp, #32]\nldp x4, x5, [sp, #48]\n"
        "ldp x6, x7, [sp, #64]\n"
        "ldp x29, x30, [sp], #208\nbr x16\n");
#else
#error "no thunks for this processor"
#endif

/* Fills the variables of all functions, or empties them. */
static void fill(int with_functions) {
    for (size_t i = 0; i < count; i++) {
        uintptr_t thunk = (uintptr_t)injector_thunks + i * THUNK;
        *functions[i].variable = with_functions ? (Function)thunk : NULL;
    }
}

/* Counts a call, and says where it goes. */
__attribute__((used, visibility("hidden"))) Function injector_counted(size_t i) {
    if (left > 0 && --left == 0) {
        left = -1;
        fill(0);
    }
    return functions[i].function;
}

/* The module logs its panic before it unwinds. */
static void log_line(Ctx *ctx, const char *level, const char *format, ...) {
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (strstr(line, "bug, please report") != NULL) {
        panics++;
        fill(1);
    }
    Log(ctx, level, "%s", line);
}

static int starts_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

/* Stands for GetApi towards the module under test. Memory is not counted: what the module
 * has allocated must go back where it came from. */
static int get_api(const char *name, void *variable) {
    static const char *memory[] = {"Alloc", "TryAlloc", "Calloc", "TryCalloc",
                                   "Realloc", "TryRealloc", "Free", "Strdup", "PoolAlloc"};
    int status = GetApi(name, variable);
    if (status != 0 || !starts_with(name, "RedisModule_")) return status;
    name += strlen("RedisModule_");
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (strcmp(name, memory[i]) == 0) return status;
    Function *place = variable;
    if (strcmp(name, "Log") == 0) {
        *place = (Function)log_line;
    } else if (count < MOST) {
        functions[count].variable = place;
        functions[count].function = *place;
        *place = (Function)((uintptr_t)injector_thunks + count * THUNK);
        count++;
    }
    return status;
}

static int arm(Ctx *ctx, String **argv, int argc) {
    long long calls = 0;
    if (argc == 2) StringToLongLong(argv[1], &calls);
    if (calls == 0) fill(0);
    else left = calls;
    return ReplyWithLongLong(ctx, calls);
}

static int disarm(Ctx *ctx, String **argv, int argc) {
    (void)argv, (void)argc;
    left = -1;
    fill(1);
    return ReplyWithLongLong(ctx, panics);
}

static int find(const char *name, void *function) {
    return GetApi(name, function) == 0;
}

int RedisModule_OnLoad(Ctx *ctx, String **argv, int argc) {
    const char *(*StringPtrLen)(const String *, size_t *);
    int (*get)(const char *, void *) = get_api;
    /* How every module comes by the API: it stands first in the context. */
    memcpy(&GetApi, ctx, sizeof GetApi);
    if (argc < 1 || !find("RedisModule_CreateCommand", &CreateCommand)
        || !find("RedisModule_ReplyWithLongLong", &ReplyWithLongLong)
        || !find("RedisModule_StringToLongLong", &StringToLongLong)
        || !find("RedisModule_StringPtrLen", &StringPtrLen) || !find("RedisModule_Log", &Log))
        return 1;
    library = dlopen(StringPtrLen(argv[0], NULL), RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, "RedisModule_OnLoad");
    if (symbol == NULL) return 1;
    Command load;
    memcpy(&load, &symbol, sizeof load);
    memcpy(ctx, &get, sizeof get);
    int status = load(ctx, argv + 1, argc - 1);
    memcpy(ctx, &GetApi, sizeof GetApi);
    if (status != 0) return status;
    return CreateCommand(ctx, "injector.arm", arm, "fast", 0, 0, 0)
        || CreateCommand(ctx, "injector.disarm", disarm, "fast", 0, 0, 0);
}

int RedisModule_OnUnload(Ctx *ctx) {
    int (*unload)(Ctx *);
    void *symbol = dlsym(library, "RedisModule_OnUnload");
    if (symbol == NULL) return 0;
    memcpy(&unload, &symbol, sizeof unload);
    return unload(ctx);
}
