#!/bin/sh
# Prints the path of the server to use, once it is known to be supported: ENGINE, one of those that
# `make engines` fetches, else SERVER, else the installed one.
set -eu

fail() {
    echo "server: $*" >&2
    exit 1
}

engine=${ENGINE:+engines/$ENGINE/server}
[ -z "$engine" ] || [ -x "$engine" ] || fail "no engine $ENGINE: make engines fetches it"
wanted=${engine:-${SERVER:-$(command -v redis-server || command -v valkey-server || echo redis-server)}}
server=$(command -v "$wanted") || fail "$wanted: no such program"
case $server in /*) ;; *) server=$PWD/$server ;; esac

# "Redis server v=7.0.15 sha=...", "Valkey server v=8.0.1 sha=..."
version=$("$server" --version 2>/dev/null | sed -n 's/^\([A-Za-z]*\) server v=\([0-9.]*\).*/\1 \2/p') || :
major=${version#* }
major=${major%%.*}
case $version in
"Redis "*) [ "$major" -ge 7 ] ;;
"Valkey "*) [ "$major" -ge 8 ] ;;
*) false ;;
esac || fail "$server is ${version:-no Redis or Valkey}: Redis 7.0 or Valkey 8.0 or later is needed (SERVER=path)"
echo "$server"
