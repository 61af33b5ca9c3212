#!/bin/sh
# Installs node-redis and ioredis into $OUT, beside copies of what is here.
set -eu
cd "$(dirname "$0")"
if ! command -v npm >/dev/null || ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'; then
    echo "missing: Node.js 20 or later, with npm"
    exit 3
fi
cp ./*.mjs package.json "$OUT"
cd "$OUT"
npm install --no-audit --no-fund --loglevel=error
