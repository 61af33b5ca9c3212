#!/bin/sh
# Tests both helpers and the Python of all pages, and runs the demonstration.
set -eu
cd "$(dirname "$0")"
PYTHONDONTWRITEBYTECODE=1 "$OUT/venv/bin/python" test_pages.py
cd "$OUT"
venv/bin/python test.py
REDIS_URL=$RWLOCK_URL venv/bin/python demo.py
