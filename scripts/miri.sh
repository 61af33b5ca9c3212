#!/bin/sh
# Runs the unit tests of the rules and of the parsers under Miri, which finds undefined behaviour.
# Miri cannot call the server or C, so it runs nothing else. Exits 3 where there is no Miri.
#
# miri.sh [filter...]: only these tests; else all that it can run within minutes
set -eu
cd "$(dirname "$0")/.."

not_run() {
    echo "miri: NOT RUN: $*" >&2
    exit 3
}

command -v rustup >/dev/null || not_run "there is no rustup, which has a nightly Rust"
rustup +nightly component add miri rust-src >/dev/null 2>&1 ||
    rustup toolchain install nightly --profile minimal --component miri,rust-src --no-self-update ||
    not_run "rustup could not install Miri and the source of the standard library"
scripts/setup.sh build
# Tests that count to 65,535 or a million, compare thousands of cases or explore all states of a
# small world would take hours. Other long tests are shorter under Miri.
[ $# -gt 0 ] || set -- core:: command:: store:: --skip core::tests::hot_locks --skip a_count_beyond \
    --skip trying_the_last_star --skip a_pattern_of_many_stars --skip waiting::explore \
    --skip waiting::random --skip core::tests::walk --skip a_search_gets_each_owner_once
# As few cases of a property as show what each does to memory.
export PROPTEST_CASES="${PROPTEST_CASES:-4}"
# Proptest asks where it is, which Miri's isolation forbids.
MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}" exec cargo +nightly miri test --locked --lib \
    --target-dir "${CARGO_TARGET_DIR:-target}/miri" -- "$@"
