#!/usr/bin/env bash
# Finds and mends what a power cut amid a provision leaves of dpkg, apt and the users' files, where every later
# provision would stop. `look` prints the name of each part that is spoilt; `mend` mends it.
#
#   dpkg    it was interrupted, or a package is half installed: apt refuses to install anything
#   lists   apt's lists cannot be read, or are empty: no package is found (looked at once after each boot)
#   bundle  packages of the bundle are not of the size that their list says: apt refuses them
#   lock    a lock of the users' files that nobody holds: no user can be made
#   group   a user of ours without its group, which is written after the user: files cannot be given to it
#   copies  what Ansible was copying, hours ago: it takes room on the card
#
# `busy` prints what uses dpkg or apt now, as apt-daily and cloud-init do for minutes after a first boot; `wait` returns
# once nothing does, and fails after so many seconds.
#
# usage: mend.sh look, mend.sh busy, mend.sh wait SECONDS, or mend.sh mend PART ...; PACKAGES_DIR is where the bundle's
# packages are, ROOT where the file system is, for the tests
set -euo pipefail
shopt -s nullglob
ROOT=${ROOT:-}
SEEN=$ROOT/run/drupelet/lists-seen
LISTS=$ROOT/var/lib/apt/lists
PACKAGES_DIR=$ROOT${PACKAGES_DIR:-/opt/drupelet/packages}
OUR_USERS='^(edge-[a-z]+|kafka)$'

# Processes that hold a lock of dpkg or apt (fcntl's, which /proc/locks shows by device and inode).
lock_holders() {
    local lock device inode pid
    for lock in "$ROOT"/var/lib/dpkg/lock-frontend "$ROOT"/var/lib/dpkg/lock "$ROOT"/var/lib/apt/lists/lock "$ROOT"/var/cache/apt/archives/lock; do
        [ -e "$lock" ] || continue
        device=$((16#$(stat -c %D "$lock"))) inode=$(stat -c %i "$lock")
        printf -v device '%02x:%02x:%s' $((device >> 8 & 0xfff)) $((device & 0xff | device >> 12 & 0xfff00)) "$inode"
        pid=$(awk -v file="$device" '$2 == "POSIX" && $6 == file { print $5; exit }' "$ROOT/proc/locks")
        [ -z "$pid" ] || echo "$(cat "$ROOT/proc/$pid/comm" 2>/dev/null || echo a program) (process $pid) holds $lock"
    done
}

busy() {
    local unit
    if cloud-init status 2>/dev/null | grep -q '^status: running'; then echo "cloud-init is not done with the first boot"; fi
    for unit in apt-daily.service apt-daily-upgrade.service; do
        case $(systemctl show --property=ActiveState --value "$unit" 2>/dev/null) in
        activating | active | deactivating) echo "$unit is at work" ;;
        esac
    done
    lock_holders
}

wait_until_free() {
    local found deadline=$((SECONDS + $1))
    while found=$(busy) && [ -n "$found" ]; do
        if [ $SECONDS -ge $deadline ]; then
            echo "after $1 s still: $(paste -sd';' <<<"$found"); look at it on the host, then run this again" >&2
            return 1
        fi
        sleep "${PAUSE_S:-3}"
    done
}

# Where dpkg is at work, its files look the same as after a power cut.
is_dpkg_interrupted() {
    local updates
    [ -z "$(lock_holders)" ] || return 1
    updates=("$ROOT"/var/lib/dpkg/updates/[0-9]*)
    [ ${#updates[@]} -gt 0 ] || [ -n "$(dpkg --audit)" ]
}

# An empty list may be right, for a part of an archive without packages, so this counts once after each boot.
are_lists_spoilt() {
    [ ! -e "$SEEN" ] || return 1
    mkdir -p "$(dirname "$SEEN")"
    touch "$SEEN"
    [ -n "$(find "$LISTS" -maxdepth 1 -type f -size 0 -name '*_Packages*')" ] || ! apt-cache stats >/dev/null 2>&1
}

# The mark says that they were unpacked and synced.
is_bundle_spoilt() {
    local marks=("$PACKAGES_DIR"/.synced-*)
    [ ${#marks[@]} -gt 0 ] || return 1
    [ -s "$PACKAGES_DIR/Packages" ] || return 0
    [ -n "$(comm -23 <(awk '/^Filename:/ { file = $2 } /^Size:/ { size = $2 } /^$/ { print size, file }' "$PACKAGES_DIR/Packages" | sort) \
        <(cd "$PACKAGES_DIR" && find . -name '*.deb' -printf '%s %p\n' | sort))" ]
}

# shadow-utils write the holder's process id into a lock before they take it.
stale_locks() {
    local lock holder
    for lock in "$ROOT"/etc/{passwd,shadow,group,gshadow,subuid,subgid}.lock; do
        [ -e "$lock" ] || continue
        holder=$(tr -dc 0-9 <"$lock")
        grep -qE '^(user|group|new|ch|pass|gpass|vi)' "$ROOT/proc/${holder:-none}/comm" 2>/dev/null || echo "$lock"
    done
}

# NAME GID of our users whose group is missing
users_without_group() {
    awk -F : -v ours="$OUR_USERS" 'FNR == NR { known[$3]; next } $1 ~ ours && !($4 in known) { print $1, $4 }' \
        "$ROOT/etc/group" "$ROOT/etc/passwd"
}

stale_copies() {
    find "$ROOT"/root/.ansible/tmp "$ROOT"/home/*/.ansible/tmp -mindepth 1 -maxdepth 1 -name 'ansible-*' -mmin +120 2>/dev/null || true
}

look() {
    if is_dpkg_interrupted; then echo dpkg; fi
    if are_lists_spoilt; then echo lists; fi
    if is_bundle_spoilt; then echo bundle; fi
    if [ -n "$(stale_locks)" ]; then echo lock; fi
    if [ -n "$(users_without_group)" ]; then echo group; fi
    if [ -n "$(stale_copies)" ]; then echo copies; fi
}

fix_broken() {
    apt-get --quiet --yes -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold --fix-broken install
}

mend_dpkg() {
    export DEBIAN_FRONTEND=noninteractive
    dpkg --configure -a --force-confdef --force-confold
    fix_broken || { apt-get --quiet update && fix_broken; }
}

# As if they were never fetched: whoever needs them fetches them.
mend_lists() {
    rm -rf "$LISTS" "$ROOT"/var/cache/apt/*.bin "$ROOT"/var/lib/apt/periodic/update-*stamp
    mkdir -p "$LISTS/partial"
    touch -d @0 "$LISTS"
}

mend_group() {
    local name gid
    while read -r name gid; do groupadd --system --gid "$gid" "$name"; done < <(users_without_group)
}

case ${1:-} in
look) look ;;
busy) busy ;;
wait) wait_until_free "$2" ;;
mend)
    for part in "${@:2}"; do
        case $part in
        dpkg) mend_dpkg ;;
        lists) mend_lists ;;
        bundle) rm -f "$PACKAGES_DIR"/.synced-* ;; # so they are copied again
        lock) stale_locks | tr '\n' '\0' | xargs -0 rm -f ;;
        group) mend_group ;;
        copies) stale_copies | tr '\n' '\0' | xargs -0 rm -rf ;;
        esac
    done
    ;;
*)
    sed -n '2,16s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
