#!/bin/sh
# There is nothing to build.
set -eu
command -v python3 >/dev/null || {
    echo "missing: Python 3.8 or later"
    exit 3
}
