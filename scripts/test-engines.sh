#!/usr/bin/env bash
# Runs the integration tests on each engine, two at a time, one line for each.
#
# ENGINES=   those that are wanted; else all
# JOBS=      how many at a time: the tests mostly wait
set -eu
cd "$(dirname "$0")/.."
names=${ENGINES:-$(scripts/engines.sh list)}
jobs=${JOBS:-2}
logs=${CARGO_TARGET_DIR:-target}/engines
# Together as many tests at a time as one `make test` runs (.cargo/config.toml).
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((8 / jobs))}

scripts/setup.sh build
cargo test --release --locked --no-run
mkdir -p "$logs"

# The tests on one engine, and a line that tells what came of them.
one() {
    local name=$1 engine=$PWD/engines/$1 log=$logs/$1.log verdict=ok counts
    if [ ! -x "$engine/server" ]; then
        echo "$name  MISSING: make engines fetches it" >&2
        return 1
    fi
    SECONDS=0
    RWLOCK_SERVER=$engine/server cargo test --release --locked --test integration >"$log" 2>&1 || verdict=FAIL
    counts=$(sed -nE 's/^test result: \S+ ([0-9]+ passed); ([0-9]+ failed);.*/\1, \2/p' "$log")
    printf '%-16s (%s)  %s  %s  %s s\n' "$name" "$(cat "$engine/version")" "$verdict" "${counts:-no result}" "$SECONDS"
    [ "$verdict" = ok ]
}

total=0
for name in $names; do
    total=$((total + 1))
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n || :
    done
    rm -f "$logs/$name.passed" "$logs/$name.log"
    { one "$name" && touch "$logs/$name.passed"; } &
done
wait || :

passed=0
for name in $names; do
    log=$logs/$name.log
    if [ -e "$logs/$name.passed" ]; then
        passed=$((passed + 1))
    elif [ -e "$log" ]; then
        printf '\n== the end of %s, and what failed\n' "$log"
        tail -n 40 "$log"
        grep -A 4 ' panicked at ' "$log" | grep -v 'stack backtrace' | head -n 60 || :
    fi
done
echo "$passed of $total engines pass"
[ "$passed" = "$total" ]
