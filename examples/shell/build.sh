#!/bin/sh
# Nothing is installed. Copies what is here to $OUT.
set -eu
cd "$(dirname "$0")"
if ! command -v redis-cli >/dev/null || ! bash -c '[ ${BASH_VERSINFO[0]} -ge 5 ]' 2>/dev/null; then
    echo "missing: bash 5.0 or later, or redis-cli"
    exit 3
fi
cp ./*.sh "$OUT"
