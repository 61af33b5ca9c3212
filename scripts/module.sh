#!/bin/sh
# Prints the path of the module to test: MODULE, or the one that it builds.
set -eu

module=${MODULE:-}
if [ -z "$module" ]; then
    scripts/setup.sh build >&2
    cargo build --release --locked >&2
    module=${CARGO_TARGET_DIR:-target}/release/librwlock.so
    [ "$(uname)" != Darwin ] || module=${module%.so}.dylib
fi
[ -e "$module" ] || { echo "module: $module is not there" >&2 && exit 1; }
echo "$(cd "$(dirname "$module")" && pwd)/$(basename "$module")"
