#!/bin/sh
# Tests the helper with both libraries, and runs the demonstration.
set -eu
cd "$OUT"
node --test --test-timeout=60000 test.mjs
for library in node-redis ioredis; do
    REDIS_URL=$RWLOCK_URL node demo.mjs $library
done
