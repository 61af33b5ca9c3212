#!/bin/sh
# Tests the helper on the server at $RWLOCK_URL, which has to be the test's alone:
# it is demoted for a moment. Then runs the code of README.md.
set -eu
cd "$(dirname "$0")"
out=${OUT:-../../target/examples/c}
"$out/test"
../../scripts/readme.sh readme.c.in >"$out/readme.c"
cc -std=gnu11 -Wall -Wextra -Werror -I. -pthread "$out/readme.c" rwlock.c rwlock_hold.c rwlock_net.c \
    -o "$out/readme" -lhiredis
"$out/readme" >"$out/readme.txt"
grep "orders now: token [1-9]" "$out/readme.txt"
