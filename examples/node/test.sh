#!/bin/sh
# Tests the helper with both libraries, runs the demonstration and the code of README.md.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$OUT"
node --test --test-timeout=180000 test.mjs
for library in node-redis ioredis; do
    REDIS_URL=$RWLOCK_URL node demo.mjs $library
done
for program in readme readme-using; do
    "$here/../../scripts/readme.sh" "$here/$program.mjs.in" >"$program.mjs"
done
node readme.mjs
# Older ones cannot read `await using`.
if node --check readme-using.mjs 2>/dev/null; then
    node readme-using.mjs
else
    npx --yes --package node@24 node readme-using.mjs
fi
