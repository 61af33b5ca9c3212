#!/bin/sh
# Tests both helpers, and runs the demonstration.
set -eu
cd "$OUT"
venv/bin/python test.py
REDIS_URL=$RWLOCK_URL venv/bin/python demo.py
