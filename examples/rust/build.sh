#!/bin/sh
# Builds the worker and the demonstration into $OUT. Exit code 3: no toolchain.
set -eu
cd "$(dirname "$0")"
out=${OUT:-../../target/examples/rust}

command -v cargo >/dev/null || {
    echo "missing: cargo (https://rustup.rs, 1.88 or later)" >&2
    exit 3
}
CARGO_TARGET_DIR=$out cargo build --quiet --release --locked
