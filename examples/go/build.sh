#!/bin/sh
# Builds the worker and the demonstration into $OUT. Exit code 3: no toolchain.
set -eu
cd "$(dirname "$0")"
out=${OUT:-../../target/examples/go}

command -v go >/dev/null || {
    echo "missing: go (https://go.dev/dl, 1.26 or later)" >&2
    exit 3
}
mkdir -p "$out"
go build -buildvcs=false -o "$out/" ./worker ./demo
