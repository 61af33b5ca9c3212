#!/bin/sh
# Builds the worker, the demonstration and the test into $OUT. Exit code 3: no toolchain.
set -eu
cd "$(dirname "$0")"
out=${OUT:-../../target/examples/c}

missing=
command -v cc >/dev/null || missing="$missing cc (Debian: gcc libc6-dev)"
echo '#include <hiredis/hiredis.h>' | cc -fsyntax-only -xc - 2>/dev/null ||
    missing="$missing hiredis/hiredis.h (Debian: libhiredis-dev)"
[ -z "$missing" ] || {
    echo "missing:$missing" >&2
    exit 3
}
mkdir -p "$out"
for program in worker demo test; do
    cc -std=gnu11 -Wall -Wextra -Werror -O2 -pthread "$program.c" rwlock.c rwlock_hold.c rwlock_net.c \
        -o "$out/$program" -lhiredis
done
