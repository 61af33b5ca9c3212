#!/usr/bin/env bash
# Fetches the servers that the tests run on into engines/<name>, each with all
# of its libraries, so that they run side by side on whatever Debian this is.
# `engines.sh list` prints the names, `engines.sh table` also packages and suites of Debian.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=own-apt.sh
. scripts/own-apt.sh

engines='
redis-7.0        redis-server   bookworm
valkey-8.0       valkey-server  bookworm bookworm-backports
redis-8.0        redis-server   trixie
valkey-8.1       valkey-server  trixie
redis-unstable   redis-server   sid
valkey-unstable  valkey-server  sid'

# fetch <name> <package> <suite>...
fetch() {
    local work=$PWD/engines/.$1 engine=engines/$1 package=$2 apt packages root ld lib
    shift 2
    rm -rf "$work"
    mkdir -p "$work"/{debs,root}
    own_apt "$work" deb "$mirror" "$@"
    packages=$("${apt[@]}" install --simulate --no-install-recommends "$package" |
        sed -nE 's/^Inst ((lib|lua|zlib|redis|valkey)[^ ]*).*/\1/p')
    # shellcheck disable=SC2086 # a list of words
    (cd "$work/debs" && "${apt[@]}" download $packages)
    for deb in "$work"/debs/*.deb; do
        dpkg -x "$deb" "$work/root"
    done

    # exec: the launcher's pid becomes the server's.
    root=$work/root
    ld=$(find "$root" -name 'ld-linux*.so.*' -path '*-linux-gnu/*' -printf '%P\n' -quit)
    lib=$(basename "$(dirname "$ld")")
    cat >"$work/server" <<EOF
#!/bin/sh
root=\$(dirname "\$(readlink -f "\$0")")/root
exec "\$root/$ld" --library-path "\$root/lib/$lib:\$root/usr/lib/$lib" "\$root/usr/bin/$package" "\$@"
EOF
    chmod +x "$work/server"
    # "Redis server v=8.0.2 sha=..." becomes "redis 8.0.2"
    "$work/server" --version | sed -nE 's/^(\w+) server v=([0-9.]+).*/\L\1 \2/p' >"$work/version"
    [ -s "$work/version" ] || { echo "E: it does not start" && return 1; }
    rm -rf "$work"/{lists,cache,debs,status,sources} "${root:?}/usr/share"
    rm -rf "$engine"
    mv "$work" "$engine"
}

case "${1:-}" in
list)
    awk 'NF { print $1 }' <<<"$engines"
    exit
    ;;
table)
    awk 'NF' <<<"$engines"
    exit
    ;;
esac

absent=$(while read -r name rest; do
    [ -z "$name" ] || [ -x "engines/$name/server" ] || echo "$name $rest"
done <<<"$engines")
[ -n "$absent" ] || exit 0

mirror=$(scripts/mirror.sh) || :
if [ ! -r "$keyring" ] || [ -z "$mirror" ]; then
    echo "engines: MISSING $(awk '{ printf "%s ", $1 }' <<<"$absent")(they are fetched from Debian's archive, and this system has no apt sources for it)" >&2
    exit 1
fi

mkdir -p engines
jobs=
while read -r name rest; do
    echo "engines: fetching $name"
    # shellcheck disable=SC2086 # a list of words
    fetch "$name" $rest >"engines/$name.log" 2>&1 &
    jobs="$jobs $name:$!"
done <<<"$absent"

status=0
for job in $jobs; do
    name=${job%:*}
    if wait "${job#*:}"; then
        rm "engines/$name.log"
        echo "engines: $name is $(cat "engines/$name/version")"
    else
        reason=$(grep -m 1 '^E:' "engines/$name.log" || tail -n 1 "engines/$name.log")
        echo "engines: MISSING $name: ${reason#E: } (see engines/$name.log)" >&2
        status=1
    fi
done
exit $status
