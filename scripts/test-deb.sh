#!/usr/bin/env bash
# Installs the Debian package on a clean system of its own, follows its README
# there and uses the server; then removes all of it. As root, with namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."

package=$(scripts/deb.sh)
mirror=$(scripts/mirror.sh || :)
if [ -z "$mirror" ]; then
    echo "test-deb: a clean system comes from Debian's archive, and this one has no apt sources for it" >&2
    exit 1
fi
# shellcheck disable=SC1091 # the system's file
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
work=$(mktemp -d)
root=$work/root
trap 'rm -rf --one-file-system "$work"' EXIT

echo "test-deb: a clean Debian $suite with redis-server"
# In a namespace of its own: what it mounts and starts ends with it.
unshare --mount --pid --fork --kill-child --mount-proc \
    debootstrap --variant=minbase --include=redis-server "$suite" "$root" "$mirror" >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" >&2
    exit 1
}
cp "$package" "$root/redis-rwlock.deb"

cat >"$root/test.sh" <<'EOF'
set -eu
fail() {
    echo "test-deb: $*" >&2
    tail -n 20 /var/log/redis/redis-server.log >&2 || :
    exit 1
}
is() {
    [ "$1" = "$2" ] || fail "$3: expected '$2', got '$1'"
}
# The server starts in the background.
ready() {
    for _ in $(seq 200); do
        [ "$(redis-cli PING 2>&1)" != PONG ] || return 0
        sleep 0.1
    done
    fail "no server"
}

dpkg -i /redis-rwlock.deb >/dev/null
is "$(dpkg -s redis-rwlock | sed -n 's/^Status: //p')" 'install ok installed' status
is "$(dpkg --verify redis-rwlock)" '' 'dpkg --verify'

# As README.Debian says.
steps() { # README.Debian's, without the indent
    sed -n '/^    grep -q /,/^        cat /s/^    //p' /usr/share/doc/redis-rwlock/README.Debian
}
[ "$(steps | wc -l)" = 2 ] || fail 'README.Debian has other steps'
# Typed twice they add one line.
eval "$(steps)"
eval "$(steps)"
service redis-server restart >/dev/null 2>&1
ready
is "$(redis-cli MODULE LIST | sed -n '/^rwlock$/{n;n;p}')" "$VERSION_NUMBER" 'the version in MODULE LIST'
is "$(stat -c %U "/proc/$(redis-cli INFO server | sed -n 's/^process_id:\([0-9]*\).*/\1/p')")" redis 'its user'
is "$(redis-cli RWLOCK.WLOCK orders me 600000)" OK WLOCK
is "$(redis-cli RWLOCK.UNLOCK orders you)" 'NOTHELD the lock is held by others, in write mode' 'UNLOCK by another'
redis-cli RWLOCK.HELP | grep -q RWLOCK.RLOCK || fail HELP

# It survives what CONFIG REWRITE makes of the line.
is "$(redis-cli CONFIG REWRITE)" OK 'CONFIG REWRITE'
is "$(grep -c '^loadmodule ' /etc/redis/redis.conf)" 1 'lines with loadmodule'
redis-cli SAVE >/dev/null
service redis-server restart >/dev/null 2>&1
ready
is "$(redis-cli RWLOCK.UNLOCK orders me)" 1 'UNLOCK after a restart'

# Removed: it says what is left to do, and nothing of it remains.
dpkg -r redis-rwlock 2>&1 | grep -q 'take the loadmodule line out of /etc/redis/redis.conf' || fail 'no warning'
is "$(redis-cli RWLOCK.WLOCK orders me 1000)" OK 'the server that runs goes on'
sed -i '/librwlock/d' /etc/redis/redis.conf
service redis-server restart >/dev/null 2>&1
ready
is "$(redis-cli MODULE LIST)" '' 'without the module'
service redis-server stop >/dev/null 2>&1
dpkg -P redis-rwlock >/dev/null 2>&1
is "$(find / -xdev -name '*rwlock*' -not -path '/redis-rwlock.deb' -not -path '/proc/*')" '' 'left behind'
EOF

echo "test-deb: $(basename "$package")"
version=$(scripts/version.sh)
number=$(echo "$version" | awk -F. '{ print 10000 * $1 + 100 * $2 + $3 }')
# Its own network too: the server has its usual port.
# shellcheck disable=SC2016 # the inner shell's arguments
unshare --mount --pid --net --fork --kill-child /bin/sh -c '
    ip link set lo up && mount -t proc proc "$0/proc" &&
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C VERSION_NUMBER="$1" chroot "$0" /bin/sh /test.sh' \
    "$root" "$number"

echo "test-deb: make install"
path=/opt/locks/lib/redis/modules/librwlock.so
DESTDIR=$root PREFIX=/opt/locks scripts/install.sh install | grep -qx "    loadmodule $path"
[ "$(stat -c %a "$root$path")" = 755 ]
# The clean system has a server of its own: one loads what was installed.
cat >"$root/installed.sh" <<'EOF'
set -eu
redis-server --port 0 --unixsocket /tmp/installed.sock --save '' --daemonize yes \
    --logfile /tmp/installed.log --loadmodule "$1" >/dev/null
for _ in $(seq 200); do
    [ "$(redis-cli -s /tmp/installed.sock PING 2>&1)" != PONG ] || break
    sleep 0.1
done
[ "$(redis-cli -s /tmp/installed.sock RWLOCK.WLOCK orders me 600000)" = OK ] || {
    cat /tmp/installed.log >&2
    exit 1
}
EOF
unshare --mount --pid --net --fork --kill-child --mount-proc \
    chroot "$root" /bin/sh /installed.sh "$path"
DESTDIR=$root PREFIX=/opt/locks scripts/install.sh uninstall >/dev/null
[ -z "$(find "$root/opt/locks" -type f)" ]
echo "test-deb: passed"
