/* The functions of the module API that take any number of arguments. Stable Rust cannot define
 * such functions; each of these passes its arguments on to one that takes a fixed number. */

#include <stdarg.h>
#include <stddef.h>
#include <string.h>

int fuzz_hash_get(void *key, void *field, void **value);
int fuzz_hash_set(void *key, void *field, void *value);
void *fuzz_call(const char *command);
int fuzz_replicate(const char *command, void **argv, size_t argc);
void fuzz_log(const char *level, const char *line);

int fuzz_variadic_hash_get(void *key, int flags, ...) {
    (void)flags;
    va_list args;
    va_start(args, flags);
    void *field = va_arg(args, void *);
    void **value = va_arg(args, void **);
    va_end(args);
    return fuzz_hash_get(key, field, value);
}

int fuzz_variadic_hash_set(void *key, int flags, ...) {
    (void)flags;
    int count = 0;
    va_list args;
    va_start(args, flags);
    for (void *field; (field = va_arg(args, void *));) {
        void *value = va_arg(args, void *);
        count += fuzz_hash_set(key, field, value);
    }
    va_end(args);
    return count;
}

void *fuzz_variadic_call(void *ctx, const char *command, const char *format, ...) {
    (void)ctx;
    (void)format;
    return fuzz_call(command);
}

int fuzz_variadic_replicate(void *ctx, const char *command, const char *format, ...) {
    (void)ctx;
    void *few[16];
    size_t count = 0;
    int status = 1;
    va_list args;
    va_start(args, format);
    for (const char *f = format; *f; f++) {
        if (*f == 's' && count < 16) {
            few[count++] = va_arg(args, void *);
        } else if (*f == 'v') {
            void **argv = va_arg(args, void **);
            size_t argc = va_arg(args, size_t);
            status = fuzz_replicate(command, argv, argc);
            count = 0;
        }
    }
    va_end(args);
    return count ? fuzz_replicate(command, few, count) : status;
}

/* The module logs with the format "%s" alone, its library with a line as the format. */
void fuzz_variadic_log(void *ctx, const char *level, const char *format, ...) {
    (void)ctx;
    va_list args;
    va_start(args, format);
    const char *line = strcmp(format, "%s") ? format : va_arg(args, const char *);
    va_end(args);
    fuzz_log(level, line);
}
