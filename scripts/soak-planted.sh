#!/usr/bin/env bash
# Plants one bug after the other in a build of the module (src/planted.rs), and expects the soak to
# find each by its name. BUGS="half-a-set": only these. TIME=180: seconds for each at most. SEED=1,
# ENGINE=, TOPOLOGY=: as for scripts/soak.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

# A bug, and the violations that show it: one of them has to be found.
expected() {
    case $1 in
    lost-wake-up | left-behind) echo 'lost-wakeup|stuck-waiter|unanswered' ;;
    lapsed-reader-counts) echo 'ghost-hold' ;;
    relative-lease) echo 'replica-differs|lease-extended' ;;
    released-twice) echo 'lost-hold|exclusion' ;;
    repeated-token) echo 'token-order' ;;
    grant-on-replica) echo 'replica-grant' ;;
    half-a-set) echo 'half-a-set' ;;
    bound-to-another) echo 'lost-hold|lease-extended' ;;
    renew-revives) echo 'revived-hold' ;;
    *) echo "soak-planted: no such bug: $1" >&2 && exit 1 ;;
    esac
}
all='lost-wake-up lapsed-reader-counts relative-lease released-twice repeated-token
    grant-on-replica left-behind half-a-set bound-to-another renew-revives'

scripts/setup.sh build server
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --features planted-bugs --target-dir "$target/planted"
module=$target/planted/release/librwlock.so

missed=0
printf '%-22s %-10s %s\n' 'planted bug' 'found in' 'violations'
for bug in ${BUGS:-$all}; do
    names=$(expected "$bug")
    began=$SECONDS
    report=$(RWLOCK_PLANTED_BUG=$bug MODULE=$module FIRST=1 TIME=${TIME:-180} SEED=${SEED:-1} scripts/soak.sh 2>&1) || :
    found=$(echo "$report" | sed -n 's/.*"violations_by_name":{\([^}]*\)}.*/\1/p')
    if echo "$found" | grep -qE "\"($names)\""; then
        printf '%-22s %-10s %s\n' "$bug" "$((SECONDS - began)) s" "${found//\"/}"
    else
        printf '%-22s %-10s %s\n' "$bug" 'NOT FOUND' "${found//\"/}"
        echo "$report" | tail -n 20 >&2
        missed=$((missed + 1))
    fi
done
exit "$((missed > 0))"
