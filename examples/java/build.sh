#!/bin/sh
# Builds the worker and the demonstration into $OUT. Exit code 3: no toolchain.
set -eu
cd "$(dirname "$0")"
out=${OUT:-$(cd ../.. && pwd)/target/examples/java}

missing=
command -v javac >/dev/null || missing="$missing javac (a JDK, 17 or later)"
command -v mvn >/dev/null || missing="$missing mvn (Maven, 3.8 or later)"
[ -z "$missing" ] || {
    echo "missing:$missing" >&2
    exit 3
}
mvn -q -B package -DskipTests -Dout="$out"
