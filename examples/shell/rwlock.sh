# shellcheck shell=bash
# Read/write locks of a Redis or Valkey server with the rwlock module, for bash 5.0 and
# later and redis-cli.
#
#     . ./rwlock.sh
#     with_write_lock -w 5 -f orders save_order     # $RWLOCK_TOKEN is its fencing token
#     with_read_lock orders show_orders
#
# with_read_lock and with_write_lock run a command (a function, too) while they hold a
# lock, and return its status. -w SECONDS: wait no longer (else for ever; 0: not at all).
# -l SECONDS: how long the hold outlives a server that crashed, 30 if not given.
# -f: hand out a fencing token. What keeps them from it is said on stderr, and returned:
#
#     75  not granted in time
#     76  waiting for it would close a circle: leave your own locks, and begin again
#     77  lost before it was given back: somebody else may have worked meanwhile
#      1  anything else
#
# RWLOCK_CLI is the redis-cli to use, with its options: RWLOCK_CLI="redis-cli -h cache".
#
# Copy this file. Licence: that of the module, MIT.

with_read_lock() { _rwlock_with READ "$@"; }
with_write_lock() { _rwlock_with WRITE "$@"; }

_rwlock_with() {
    local kind=$1 wait='' lease=30 fence='' option OPTIND=1 OPTARG status lock to from reply
    shift
    while getopts w:l:f option; do
        case $option in
        w) wait=$OPTARG ;;
        l) lease=$OPTARG ;;
        f) fence=FENCE ;;
        *) return 1 ;;
        esac
    done
    shift $((OPTIND - 1))
    [ $# -ge 2 ] || {
        echo "with_lock: a lock and a command are needed" >&2
        return 1
    }
    lock=$1
    shift

    # By process, not by hold: re-entry and the search for deadlocks go by the owner.
    local owner="${_rwlock_run:=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')}:$BASHPID"
    _rwlock_take || return
    local -x RWLOCK_TOKEN=
    [ -z "$fence" ] || read -r RWLOCK_TOKEN <&"$from"
    "$@"
    status=$?
    _rwlock_say "RWLOCK.UNLOCK $(_rwlock_quoted "$lock") $owner $kind"
    _rwlock_hear
    _rwlock_leave
    case $reply in
    0 | 1) return $status ;;
    *)
        echo "$lock: ${reply:-the connection is gone}" >&2
        [ $status != 0 ] || status=77
        return $status
        ;;
    esac
}

# The hold is a session: it lives as long as the connection of a redis-cli that runs
# beside us, and that is ended when its input ends, whatever may happen to us.
_rwlock_take() {
    local begun=${EPOCHREALTIME/[.,]/} left=0 block='' reached=
    while :; do
        if [ -n "$wait" ]; then
            left=$(($(_rwlock_ms "$wait") - (${EPOCHREALTIME/[.,]/} - begun) / 1000))
            left=$((left < 1 ? 1 : left))
        fi
        [ "$wait" = 0 ] || block="BLOCK $left"
        _rwlock_open
        _rwlock_say PING
        _rwlock_hear
        if [ "$reply" = PONG ]; then
            reached=yes
            _rwlock_say "RWLOCK.${kind:0:1}LOCK $(_rwlock_quoted "$lock") $owner" \
                "$(_rwlock_ms "$lease") SESSION $block $fence"
            _rwlock_hear
        fi
        [ "$reply" != OK ] || return 0
        _rwlock_leave
        case $reply in
        [0-9]* | -1)
            echo "$lock: not granted in time" >&2
            return 75
            ;;
        DEADLOCK\ *)
            echo "$lock: $reply" >&2
            return 76
            ;;
        # What is over when another server has taken over.
        UNBLOCKED\ * | READONLY\ * | LOADING\ * | TRYAGAIN\ * | CLUSTERDOWN\ * | MOVED\ * | \
            MASTERDOWN\ * | Could\ not\ connect* | Error:* | '')
            if [ -z "$reached" ] || [ "$left" = 1 ]; then
                echo "$lock: ${reply:-the connection is gone}" >&2
                return 1
            fi
            sleep 0.1
            ;;
        *)
            echo "$lock: $reply" >&2
            return 1
            ;;
        esac
    done
}

_rwlock_open() {
    local pipes
    pipes=$(mktemp -d)
    mkfifo "$pipes/to" "$pipes/words" "$pipes/from"
    (
        # shellcheck disable=SC2086 # a command with its options
        ${RWLOCK_CLI:-redis-cli} --raw <"$pipes/words" >"$pipes/from" 2>&1 &
        # While it waits for an answer it does not see that its input has ended.
        cat "$pipes/to" >"$pipes/words"
        kill $!
    ) 2>/dev/null &
    # Each waits for its other end to be opened.
    exec {to}>"$pipes/to" {from}<"$pipes/from"
    disown
    rm -r "$pipes"
}

_rwlock_leave() { exec {to}>&- {from}<&-; }

# One that has left would be a signal to us.
_rwlock_say() { (trap '' PIPE && echo "$*" >&"$to") 2>/dev/null; }

# Sets reply to the next line of an answer.
_rwlock_hear() {
    reply=
    while read -r reply <&"$from"; do
        case $reply in '' | '-> Redirected'*) ;; *) return ;; esac
    done
}

_rwlock_ms() { awk -v seconds="$1" 'BEGIN { printf "%d", seconds * 1000 }'; }

# As redis-cli takes a word apart.
_rwlock_quoted() {
    local word=${1//\\/\\\\}
    printf '"%s"' "${word//\"/\\\"}"
}
