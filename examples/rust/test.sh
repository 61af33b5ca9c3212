#!/bin/sh
# Tests the helper on the server at $RWLOCK_URL, which has to be the test's alone:
# it is demoted for a moment.
set -eu
cd "$(dirname "$0")"
CARGO_TARGET_DIR=${OUT:-../../target/examples/rust} cargo test --quiet --release --locked
