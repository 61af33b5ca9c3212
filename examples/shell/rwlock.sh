# shellcheck shell=bash
# Read/write locks of a Redis or Valkey server with the rwlock module, for bash 5.0 and
# later and redis-cli.
#
#     . ./rwlock.sh
#     with_write_lock --wait-ms 5000 --fence orders save_order    # uses $RWLOCK_TOKEN
#     with_read_lock --wait-ms 5000 orders show_orders
#     with_locks --wait-ms 5000 --read prices --write orders --write stock ship
#
# They run a command (also a function) while they hold the lock, and return its status.
# Without a command:
#
#     rwlock_acquire --wait-ms 5000 --write orders || exit
#     rwlock_release
#
# Between the two, and in a function that runs under a lock:
#
#     rwlock_upgrade [--wait-ms MS] [--fence]    from read to write, with no gap
#     rwlock_downgrade                           from write to read, with no gap
#     rwlock_check                               asks the server; 77 if the hold was lost
#
# The options:
#
#     --wait-ms MS     how long to wait; "forever": no limit; without it: try once
#     --lease-ms MS    how long the hold lasts after the server lost its session, or after
#                      the last renewal (30000)
#     --fence          get fencing tokens into RWLOCK_TOKEN, one for each write lock
#     --no-session     a process in the background renews the lease; else the hold lasts as
#                      long as its connection
#
# A failure is told on stderr, and is the status:
#
#     75  not granted in time. The lease ends in RWLOCK_LEFT_MS, unless it is renewed (0: others
#         are ahead in its queue; -1: it has no expiry; empty: no server took the request)
#     76  deadlock: each owner would wait for another one. Release your locks and start again
#     77  the hold was lost: another owner may have worked at the same time
#      1  anything else
#
# RWLOCK_CLI is the redis-cli with its options: RWLOCK_CLI="redis-cli -h cache".
# RWLOCK_NAME is the name of the program in RWLOCK.INSPECT; without it that of the script.
#
# Copy this file. Licence: that of the module, MIT.

with_read_lock() { _rwlock_with read "$@"; }
with_write_lock() { _rwlock_with write "$@"; }
with_locks() { _rwlock_with '' "$@"; }

rwlock_acquire() {
    [ -z "${_rwlock_owner-}" ] || _rwlock_fail 1 "${_rwlock_names[*]} is still held" || return
    _rwlock_read=() _rwlock_write=() _rwlock_lease=30000 _rwlock_session=SESSION
    _rwlock_options "$@" && _rwlock_take
}

rwlock_release() {
    _rwlock_expect || return
    local lost='' word
    if [ ${#_rwlock_names[@]} = 1 ]; then
        for word in ${_rwlock_write[0]+WRITE} ${_rwlock_read[0]+READ}; do
            _rwlock_ask 5000 RWLOCK.UNLOCK "${_rwlock_names[0]}" "$_rwlock_owner" "$word"
            case $_rwlock_reply in 0 | 1) ;; *) lost=${_rwlock_reply:-no reply} ;; esac
        done
    else
        _rwlock_clauses
        _rwlock_ask 5000 RWLOCK.MUNLOCK "$_rwlock_owner" "${_rwlock_words[@]}"
        for word in "${_rwlock_names[@]}"; do
            case $_rwlock_reply in
            0 | 1) ;;
            -1) lost=$word ;;
            *) lost=${_rwlock_reply:-no reply} && break ;;
            esac
            [ "$word" = "${_rwlock_names[-1]}" ] || _rwlock_hear 5000
        done
    fi
    _rwlock_leave
    [ -z "$_rwlock_renewer" ] || kill "$_rwlock_renewer" 2>/dev/null || :
    _rwlock_owner='' RWLOCK_HELD=$_rwlock_outer
    [ -z "$lost" ] || _rwlock_fail 77 "${_rwlock_names[*]} was lost: $lost"
}

rwlock_upgrade() {
    _rwlock_expect || return
    local _rwlock_wait _rwlock_fence _rwlock_rest
    _rwlock_options "$@" || return
    [ ${#_rwlock_read[@]}:${#_rwlock_write[@]} = 1:0 ] ||
        _rwlock_fail 1 "${_rwlock_names[*]}: only a hold of one read lock can be upgraded" || return
    _rwlock_words=(RWLOCK.UPGRADE "${_rwlock_names[0]}" "$_rwlock_owner" "$_rwlock_lease")
    _rwlock_request "$_rwlock_wait"
    [ "$_rwlock_reply" = OK ] || _rwlock_refused || return
    _rwlock_write=("${_rwlock_names[@]}")
}

rwlock_downgrade() {
    _rwlock_expect || return
    local name
    for name in "${_rwlock_write[@]}"; do
        _rwlock_ask 5000 RWLOCK.DOWNGRADE "$name" "$_rwlock_owner" "$_rwlock_lease"
        [ "$_rwlock_reply" = OK ] || _rwlock_refused || return
    done
    _rwlock_read=("${_rwlock_names[@]}") _rwlock_write=() RWLOCK_TOKEN=
}

rwlock_check() {
    _rwlock_expect || return
    local name
    for name in "${_rwlock_names[@]}"; do
        _rwlock_ask 5000 RWLOCK.RENEW "$name" "$_rwlock_owner" "$_rwlock_lease"
        [ "$_rwlock_reply" = OK ] || _rwlock_refused || return
    done
}

# <read | write | ''> <option>... [<lock>] <command>...
# What is local here is local to this hold, so that a command may take more locks.
_rwlock_with() {
    local _rwlock_{owner,pid,wait,fence,to,from,reply,outer,renewer,status}=''
    local _rwlock_lease=30000 _rwlock_session=SESSION
    local _rwlock_names=() _rwlock_read=() _rwlock_write=() _rwlock_words=() _rwlock_rest=()
    local -x RWLOCK_TOKEN='' RWLOCK_HELD=${RWLOCK_HELD-}
    _rwlock_options "${@:2}" || return
    case $1 in
    read) _rwlock_read+=("${_rwlock_rest[@]:0:1}") ;;
    write) _rwlock_write+=("${_rwlock_rest[@]:0:1}") ;;
    esac
    [ -z "$1" ] || _rwlock_rest=("${_rwlock_rest[@]:1}")
    [ ${#_rwlock_rest[@]} != 0 ] || _rwlock_fail 1 'a lock and a command are needed' || return
    _rwlock_take || return
    "${_rwlock_rest[@]}"
    _rwlock_status=$?
    rwlock_release || _rwlock_status=$((_rwlock_status ? _rwlock_status : $?))
    return "$_rwlock_status"
}

_rwlock_options() {
    _rwlock_wait=0 _rwlock_fence=''
    while [[ ${1-} == -* ]]; do
        case $1:${2-} in
        --wait-ms:forever | --wait-ms:[0-9]*) _rwlock_wait=$2 && shift ;;
        --lease-ms:[0-9]*) _rwlock_lease=$2 && shift ;;
        --read:?*) _rwlock_read+=("$2") && shift ;;
        --write:?*) _rwlock_write+=("$2") && shift ;;
        --fence:*) _rwlock_fence=FENCE ;;
        --no-session:*) _rwlock_session='' ;;
        --:*) shift && break ;;
        *) _rwlock_fail 1 "$1 is no option, or has no value" || return ;;
        esac
        shift
    done
    _rwlock_rest=("$@")
}

_rwlock_take() {
    local begun=${EPOCHREALTIME/[.,]/} left limit owner once=ONCE name
    _rwlock_names=("${_rwlock_read[@]}" "${_rwlock_write[@]}")
    [ ${#_rwlock_names[@]} != 0 ] || _rwlock_fail 1 'a lock is needed' || return
    _rwlock_find_owner
    if [ ${#_rwlock_names[@]} = 1 ]; then
        name=RWLOCK.${_rwlock_read[0]+R}${_rwlock_write[0]+W}LOCK
        _rwlock_words=("$name" "${_rwlock_names[0]}" "$owner" "$_rwlock_lease")
    else
        _rwlock_clauses
        _rwlock_words=(RWLOCK.MLOCK "$owner" "$_rwlock_lease" "${_rwlock_words[@]}")
    fi
    # redis-cli sends a request again that failed. With ONCE that counts once.
    # shellcheck disable=SC2206 # a word or none
    [ -n "$_rwlock_session" ] || _rwlock_words+=($once)

    while :; do
        left=$_rwlock_wait limit=5000
        if [ "$left" != forever ] && [ "$left" != 0 ]; then
            left=$((left - (${EPOCHREALTIME/[.,]/} - begun) / 1000))
            left=$((left < 1 ? 1 : left))
            limit=$((left < 4600 ? left + 400 : 5000))
        fi
        _rwlock_open
        _rwlock_ask $limit CLIENT SETNAME "${owner%:*}"
        case $_rwlock_reply in OK | NOPERM\ *)
            _rwlock_reached=yes
            _rwlock_request "$left"
            ;;
        esac
        [ "$_rwlock_reply" != OK ] || break
        _rwlock_leave
        case $_rwlock_reply in
        # This is over when another server has taken over.
        UNBLOCKED\ * | READONLY\ * | LOADING\ * | TRYAGAIN\ * | ASK\ * | CLUSTERDOWN\ * | MOVED\ * | \
            MASTERDOWN\ * | Could\ not\ connect* | Error:* | '')
            # A server that was never reached is not waited for: its address may be wrong.
            [ "$left" != 0 ] && [ -n "${_rwlock_reached-}" ] || _rwlock_refused || return
            if [ "$left" != forever ] && [ "$left" -le 100 ]; then
                _rwlock_refused 75 || return
            fi
            sleep 0.1
            ;;
        *) _rwlock_refused || return ;;
        esac
    done

    _rwlock_owner=$owner _rwlock_pid=$BASHPID _rwlock_outer=${RWLOCK_HELD-} _rwlock_renewer=
    export RWLOCK_TOKEN RWLOCK_HELD=${RWLOCK_HELD-}
    for name in "${_rwlock_names[@]}"; do
        RWLOCK_HELD+=$owner\ $name$'\n'
    done
    if [ -z "$_rwlock_session" ]; then
        _rwlock_renew </dev/null >/dev/null 2>&1 &
        _rwlock_renewer=$!
        disown
    fi
}

# Sets owner. A line of RWLOCK_HELD is an owner and a lock that this script runs under: then
# it enters that lock again. For other locks a process stays the same owner, because the
# search for deadlocks goes by the owner.
_rwlock_find_owner() {
    local line name LC_ALL=C
    owner=
    while IFS= read -r line; do
        for name in "${_rwlock_names[@]}"; do
            [ "${line#* }" = "$name" ] || continue
            owner=${line%% *} once=''
            return
        done
        [[ $line != *":$BASHPID:"*\ * ]] || owner=${line%% *}
    done <<<"${RWLOCK_HELD-}"
    [ -z "$owner" ] || return 0
    name=${RWLOCK_NAME:-${0##*/}}
    owner=${name:0:100}@${HOSTNAME:0:60}
    owner=${owner//[^[:alnum:]@._-]/-}:$BASHPID:$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')
}

# <ms left> sends _rwlock_words, and sets _rwlock_reply and RWLOCK_TOKEN.
_rwlock_request() {
    # shellcheck disable=SC2206 # words or none
    local words=("${_rwlock_words[@]}" $_rwlock_session $_rwlock_fence) limit=5000 writes
    case $1 in
    0) ;;
    forever) words+=(BLOCK 0) limit=forever ;;
    *) words+=(BLOCK "$1") limit=$(($1 + 400)) ;; # the server itself ends the wait in time
    esac
    _rwlock_ask "$limit" "${words[@]}"
    [ "$_rwlock_reply" = OK ] || return 0
    RWLOCK_TOKEN=
    [ -n "$_rwlock_fence" ] || return 0
    writes=${#_rwlock_write[@]} # 0: this is an upgrade
    for ((writes = writes ? writes : 1; writes; writes--)); do
        _rwlock_hear 5000
        RWLOCK_TOKEN+=${RWLOCK_TOKEN:+ }$_rwlock_reply
    done
    _rwlock_reply=OK
}

# [<status>] says why _rwlock_reply is no success, and returns the status for it.
_rwlock_refused() {
    local why=${_rwlock_reply:-no reply} late="${_rwlock_names[*]} was not granted in time"
    # shellcheck disable=SC2034 # for the script
    RWLOCK_LEFT_MS=
    if [ -n "${1-}" ]; then
        _rwlock_fail "$1" "$late: no server took the request ($why)" || return
    fi
    case $_rwlock_reply in
    -1 | [0-9] | [0-9]*[0-9])
        # shellcheck disable=SC2034
        RWLOCK_LEFT_MS=$_rwlock_reply
        why="its lease ends in $_rwlock_reply ms, unless it is renewed"
        [ "$_rwlock_reply" != 0 ] || why='others are ahead in its queue'
        [ "$_rwlock_reply" != -1 ] || why='it is held without expiry'
        _rwlock_fail 75 "$late: $why"
        ;;
    DEADLOCK\ *) _rwlock_fail 76 "${_rwlock_names[*]}: $why" ;;
    NOTHELD\ *) _rwlock_fail 77 "${_rwlock_names[*]} was lost: $why" ;;
    ERR\ unknown\ command*)
        _rwlock_fail 1 "the rwlock module is not loaded, or too old: ${why%%,*}"
        ;;
    Could\ not\ connect* | Error:* | '') # with its connection a session is lost, too
        local status=1
        [[ -z ${_rwlock_owner-} || -z $_rwlock_session ]] || status=77
        _rwlock_fail $status "${_rwlock_names[*]}: $why"
        ;;
    *) _rwlock_fail 1 "${_rwlock_names[*]}: $why" ;;
    esac
}

# Renews the lease until it is killed, or the script has ended.
_rwlock_renew() {
    exec {_rwlock_to}>&- {_rwlock_from}<&-
    trap 'kill $!; exit' TERM
    local name
    while sleep "$(_rwlock_seconds $((_rwlock_lease / 3)))" & wait $!; do
        kill -0 "$_rwlock_pid" || exit
        for name in "${_rwlock_names[@]}"; do
            ${RWLOCK_CLI:-redis-cli} --no-auth-warning \
                RWLOCK.RENEW "$name" "$_rwlock_owner" "$_rwlock_lease"
        done
    done
}

# Starts a redis-cli beside us. Its connection is the session: it ends when its input ends,
# whatever may happen to us.
_rwlock_open() {
    local pipes
    pipes=$(mktemp -d)
    mkfifo "$pipes/to" "$pipes/words" "$pipes/from"
    (
        # shellcheck disable=SC2086 # a command with its options
        ${RWLOCK_CLI:-redis-cli} --raw --no-auth-warning <"$pipes/words" >"$pipes/from" 2>&1 &
        # While it waits for a reply it does not see that its input has ended.
        cat "$pipes/to" >"$pipes/words"
        kill $!
    ) >/dev/null 2>&1 &
    # Each waits for its other end to be opened.
    exec {_rwlock_to}>"$pipes/to" {_rwlock_from}<"$pipes/from"
    disown
    rm -r "$pipes"
}

_rwlock_leave() {
    _rwlock_say quit # a job in the background may keep its input open
    [ -z "$_rwlock_to" ] || exec {_rwlock_to}>&- {_rwlock_from}<&-
    _rwlock_to=
}

# <ms> <word>... sends a command, and sets _rwlock_reply to the first line of its reply.
_rwlock_ask() {
    local word line='' limit=$1
    shift
    for word; do # quoted as redis-cli takes words apart
        word=${word//\\/\\\\}
        line+=" \"${word//\"/\\\"}\""
    done
    _rwlock_say "$line"
    _rwlock_hear "$limit"
}

_rwlock_say() {
    # A redis-cli that is gone would be a signal to us.
    [ -z "$_rwlock_to" ] || (trap '' PIPE && echo "$1" >&"$_rwlock_to") 2>/dev/null || :
}

# <ms> sets _rwlock_reply to the next line, or to nothing when none comes.
_rwlock_hear() {
    local limit=()
    [ "$1" = forever ] || limit=(-t "$(_rwlock_seconds "$1")")
    _rwlock_reply=
    [ -n "$_rwlock_to" ] || return 0
    while IFS= read -r "${limit[@]}" _rwlock_reply <&"$_rwlock_from"; do
        case $_rwlock_reply in '' | '-> Redirected'*) ;; *) return 0 ;; esac
    done
    _rwlock_reply=
    _rwlock_leave # a reply that comes later would be taken for that of another command
}

_rwlock_seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

# Sets _rwlock_words to the clauses of MLOCK and MUNLOCK: READ 2 a b WRITE 1 c.
_rwlock_clauses() {
    _rwlock_words=()
    [ ${#_rwlock_read[@]} = 0 ] || _rwlock_words+=(READ ${#_rwlock_read[@]} "${_rwlock_read[@]}")
    [ ${#_rwlock_write[@]} = 0 ] || _rwlock_words+=(WRITE ${#_rwlock_write[@]} "${_rwlock_write[@]}")
}

_rwlock_expect() {
    [[ -n ${_rwlock_owner-} && $_rwlock_pid = "$BASHPID" ]] ||
        _rwlock_fail 1 'this shell holds no lock, or gave it back already'
}

_rwlock_fail() { # <status> <what>
    echo "$2" >&2
    return "$1"
}
