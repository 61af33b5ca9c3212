#!/bin/sh
# readme.sh examples/<language>/readme.<suffix>.in [page]: prints the program with the blocks of
# the page, or of the README.md beside it, in place of the lines BLOCK 1, BLOCK 2 and so on, and
# with the server at $RWLOCK_URL in place of 127.0.0.1 and 6379.
set -eu
server=${RWLOCK_URL#redis://}
awk -v host="${server%:*}" -v port="${server##*:}" '
    FNR == NR && /^```/ { is_code = !is_code; number += is_code; next }
    FNR == NR { if (is_code) block[number] = block[number] $0 "\n"; next }
    { text = $0 "\n" }
    match($0, /BLOCK [0-9]+/) { text = block[substr($0, RSTART + 6, RLENGTH - 6)] }
    { gsub(/127\.0\.0\.1/, host, text); gsub(/6379/, port, text); printf "%s", text }
' "${2:-$(dirname "$1")/README.md}" "$1"
