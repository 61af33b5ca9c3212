#!/usr/bin/env bash
# Runs the integration tests on each engine, one line for each.
set -eu
cd "$(dirname "$0")/.."
names=${ENGINES:-$(scripts/engines.sh list)}
logs=${CARGO_TARGET_DIR:-target}/engines

scripts/setup.sh build
cargo test --release --locked --no-run
mkdir -p "$logs"

total=0 passed=0 failed=
for name in $names; do
    total=$((total + 1))
    engine=$PWD/engines/$name log=$logs/$name.log
    if [ ! -x "$engine/server" ]; then
        echo "$name  MISSING: make engines fetches it" >&2
        continue
    fi
    SECONDS=0 verdict=ok
    RWLOCK_SERVER=$engine/server cargo test --release --locked --test integration >"$log" 2>&1 || {
        verdict=FAIL
        failed="$failed $log"
    }
    [ "$verdict" = FAIL ] || passed=$((passed + 1))
    counts=$(sed -nE 's/^test result: \S+ ([0-9]+ passed); ([0-9]+ failed);.*/\1, \2/p' "$log")
    printf '%-16s (%s)  %s  %s  %s s\n' "$name" "$(cat "$engine/version")" "$verdict" "${counts:-no result}" "$SECONDS"
done

for log in $failed; do
    printf '\n== the end of %s, and what failed\n' "$log"
    tail -n 40 "$log"
    grep -A 4 ' panicked at ' "$log" | grep -v 'stack backtrace' | head -n 60 || :
done
echo "$passed of $total engines pass"
[ "$passed" = "$total" ]
