#!/bin/sh
# Installs redis-py into a virtual environment in $OUT.
set -eu
cd "$(dirname "$0")"
if ! command -v python3 >/dev/null || ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "missing: Python 3.11 or later, with venv (on Debian: python3-venv)"
    exit 3
fi
cp ./*.py "$OUT"
[ -x "$OUT/venv/bin/pip" ] || python3 -m venv "$OUT/venv"
"$OUT/venv/bin/pip" install --quiet --disable-pip-version-check --requirement requirements.txt
