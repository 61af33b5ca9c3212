#!/usr/bin/env bash
# Runs tests on servers under valgrind's memcheck. Fails if memcheck reports an invalid read or
# write, a use of memory without a value, or a definite leak, with the module in its stack.
# ONLY: which tests, as words that their names begin with.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build server valgrind
server=$(scripts/server.sh)
folder=$PWD/${CARGO_TARGET_DIR:-target}/valgrind
rm -rf "$folder"
mkdir -p "$folder/logs"

# The server takes its memory from jemalloc, which memcheck has to know. What stays in use until
# the end is no leak: the module is never unloaded here.
cat >"$folder/server" <<EOF
#!/bin/sh
case "\$1" in --version | -v | --check-system) exec "$server" "\$@" ;; esac
exec valgrind --quiet --soname-synonyms=somalloc=*jemalloc* --leak-check=full \\
    --show-leak-kinds=definite --num-callers=40 --log-file="$folder/logs/%p" "$server" "\$@"
EOF
chmod +x "$folder/server"

cargo test --release --locked --test integration --no-run
# shellcheck disable=SC2086 # several words
RWLOCK_SERVER=$folder/server RUST_TEST_THREADS=${THREADS:-2} \
    cargo test --release --locked --test integration -- \
    ${ONLY:-commands:: waiting:: sessions:: leases:: fencing:: events::} || failed=1

# A report is a block of lines; blocks are apart by a line without text.
awk -v RS='==[0-9]+== *\n' '/librwlock/ { print FILENAME; print; found = 1 } END { exit found }' \
    "$folder"/logs/* || {
    echo "valgrind: the module is in the reports above" >&2
    exit 1
}
echo "valgrind: $(find "$folder/logs" -type f | wc -l) servers, no report with the module"
exit "${failed:-0}"
