#!/usr/bin/env bash
# Test hosts with systemd as pid 1, without Docker: systemd-nspawn over an overlay of a root, each in a network
# namespace of its own, all on one bridge in the lab's namespace. Needs root, mmdebstrap, systemd-nspawn and ip.
#   lab.sh root SUITE                    make Debian's SUITE (bookworm or trixie) a root once, print where it is
#   lab.sh up LAB NAME ADDRESS SUITE     start a host at ADDRESS/24; it ends by itself after an hour
#   lab.sh restart LAB NAME              pull the host's plug and start it again
#   lab.sh memory LAB NAME BYTES         bound what the host's processes may use in all
#   lab.sh down LAB                      end every host of the lab; nothing of it is left
#   lab.sh link LAB NAME bad DELAY_MS LOSS_PERCENT RATE_KBIT     make a host's link bad, each way; see link.py
#   lab.sh link LAB NAME cut|good        cut it, or make it good again
#   lab.sh ssh LAB ARGUMENT ...          ssh from inside the lab
#   lab.sh stranger LAB ADDRESS COMMAND ...     run a command as somebody in the lab's network who is no host of it
set -euo pipefail
shopt -s inherit_errexit
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/drupelet/roots
LABS=/var/tmp/drupelet-lab
HOST_LIFE_S=3600
# What a freshly flashed board has and what apt would bring: hosts have no way out. kcat and the clients are for verify.
PACKAGES=(systemd-sysv dbus openssh-server python3 python3-apt python3-venv iproute2 kmod udev procps
    nftables chrony unattended-upgrades mosquitto default-jre-headless mosquitto-clients kcat)

usage() {
    sed -n '4,/^set/{/^#/p}' "$0" >&2
    exit 2
}

# Removes what a killed build left. Its mounts go first: rm would walk on into this machine's /proc, /sys and /dev/shm.
remove_part() {
    local mounted
    while read -r _ mounted _; do
        if [[ $mounted == "$1"/* ]]; then umount --lazy "$mounted"; fi
    done < <(tac /proc/mounts)
    rm -rf --one-file-system "$1"
}

# One root for each suite, with everything in it; a lock, as two scenarios may ask at once.
# The build mounts in a namespace of its own, so that no mount outlives it.
make_root() {
    local suite=$1 root
    root=$CACHE/$suite-$(sha256sum <<<"${PACKAGES[*]}" | cut -c1-8)
    mkdir -p "$CACHE"
    exec 7>"$CACHE/$suite.lock"
    flock 7
    if [ ! -d "$root" ]; then
        remove_part "$root.part"
        TMPDIR=/dev/shm unshare --mount mmdebstrap --quiet --variant=minbase --include="${PACKAGES[*]}" "$suite" "$root.part" >&2 7>&-
        mv "$root.part" "$root"
    fi
    exec 7>&-
    echo "$root"
}

# The cgroup hierarchies systemd needs, and the one that bounds memory: three where version 1 is mounted, else one.
hierarchies() {
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        echo /sys/fs/cgroup
    else
        echo /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup/memory
    fi
}

network_up() {
    local lab=$1 address=$2
    [ -e "/run/netns/drupelet-$lab" ] && return
    ip netns add "drupelet-$lab"
    ip -n "drupelet-$lab" link set lo up
    ip -n "drupelet-$lab" link add lab type bridge
    ip -n "drupelet-$lab" addr add "${address%.*}.1/24" dev lab
    ip -n "drupelet-$lab" link set lab up
}

host_network_up() {
    local lab=$1 name=$2 address=$3 space=drupelet-$1-$2
    ip netns add "$space"
    ip -n "$space" link set lo up
    ip -n "$space" link add eth0 type veth peer name "$name" netns "drupelet-$lab"
    ip -n "drupelet-$lab" link set "$name" master lab up
    ip -n "$space" addr add "$address/24" dev eth0
    ip -n "$space" link set eth0 up
    ip -n "$space" route add default via "${address%.*}.1"
}

host_root_up() {
    local name=$1 root=$2 key=$3
    echo "$name" >"$root/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n::1 localhost\n' "$name" >"$root/etc/hosts"
    : >"$root/etc/machine-id"
    # chronyd runs without the right to set the clock, which is that of the machine under the lab.
    mkdir -p "$root/etc/systemd/system/chrony.service.d"
    # shellcheck disable=SC2016 # systemd expands it
    printf '[Unit]\nConditionCapability=\n[Service]\nExecStart=\nExecStart=!/usr/sbin/chronyd $DAEMON_OPTS -x\n' \
        >"$root/etc/systemd/system/chrony.service.d/lab.conf"
    install -d -m 700 "$root/root/.ssh"
    install -m 600 "$key" "$root/root/.ssh/authorized_keys"
}

# This process, and all it starts, goes into cgroups of that name, by which it is found and ended.
enter_cgroups() {
    local hierarchy
    for hierarchy in $(hierarchies); do
        mkdir -p "$hierarchy/$1"
        echo "$BASHPID" >"$hierarchy/$1/cgroup.procs"
    done
}

boot() {
    local space=$1 root=$2
    enter_cgroups "$space"
    exec setsid timeout --kill-after=30 "$HOST_LIFE_S" systemd-nspawn -q -D "$root" -M "$space" --register=no --keep-unit \
        --network-namespace-path="/run/netns/$space" --resolv-conf=off --timezone=off --link-journal=no \
        --capability=CAP_NET_ADMIN --console=pipe --boot
}

up() {
    local lab=$1 name=$2 address=$3 suite=$4 lower dir=$LABS/$1/$2
    lower=$(make_root "$suite")
    mkdir -p "$dir"/{upper,work,root}
    [ -e "$LABS/$lab/id" ] || ssh-keygen -q -t ed25519 -N '' -f "$LABS/$lab/id"
    network_up "$lab" "$address"
    host_network_up "$lab" "$name" "$address"
    mount -t overlay "drupelet-$lab-$name" -o "lowerdir=$lower,upperdir=$dir/upper,workdir=$dir/work" "$dir/root"
    host_root_up "$name" "$dir/root" "$LABS/$lab/id.pub"
    (boot "drupelet-$lab-$name" "$dir/root") </dev/null >"$dir/console.log" 2>&1 &
}

restart() {
    local space=drupelet-$1-$2 dir=$LABS/$1/$2
    masters_down "$1"
    empty_cgroups "$space"
    (boot "$space" "$dir/root") </dev/null >>"$dir/console.log" 2>&1 &
}

memory() {
    local space=drupelet-$1-$2 bytes=$3
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        echo "$bytes" >"/sys/fs/cgroup/$space/memory.max"
    else
        echo "$bytes" >"/sys/fs/cgroup/memory/$space/memory.limit_in_bytes"
    fi
}

# Kills every process of a host (its cgroups hold nothing else) and removes the cgroups, or fails after 20 s.
empty_cgroups() {
    local hierarchy pids
    for hierarchy in $(hierarchies); do
        [ -d "$hierarchy/$1" ] || continue
        for _ in $(seq 100); do
            mapfile -t pids < <(find "$hierarchy/$1" -name cgroup.procs -exec cat {} +)
            [ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}" 2>/dev/null || true # some are gone by then
            find "$hierarchy/$1" -depth -type d -exec rmdir {} + 2>/dev/null && break
            sleep 0.2
        done
        if [ -d "$hierarchy/$1" ]; then
            echo "Processes of $1 do not end: see $hierarchy/$1." >&2
            exit 1
        fi
    done
}

# The host's end of its cable moves to a bridge of its own; between that one and the lab's, link.py carries frames.
link_bad() {
    local lab=$1 name=$2 space=drupelet-$1 control device
    link_good "$lab" "$name"
    control=$(ip -n "$space" -o -4 addr show dev lab | sed -E 's,.* inet ([0-9.]+)/.*,\1,')
    ip -n "$space" link add "far.$name" type bridge
    for device in "n.$name" "f.$name"; do
        ip -n "$space" tuntap add mode tap name "$device"
        ip -n "$space" link set "$device" up
    done
    ip -n "$space" link set "n.$name" master lab
    ip -n "$space" link set "f.$name" master "far.$name"
    ip -n "$space" link set "$name" master "far.$name"
    ip -n "$space" link set "far.$name" up
    for _ in 1 2 3; do
        carry "$lab" "$name" "${@:3}" "$control"
        if is_carried "$space" "$name"; then return; fi
        cat "$LABS/$lab/$name/link.log" >&2
        empty_cgroups "$space-$name-link"
    done
    echo "The link of $name does not come up." >&2
    exit 1
}

carry() {
    local lab=$1 name=$2 space=drupelet-$1
    (
        enter_cgroups "$space-$name-link"
        exec setsid timeout "$HOST_LIFE_S" nsenter --net="/run/netns/$space" python3 "$(dirname "$0")/link.py" "n.$name" "f.$name" \
            "${@:3}"
    ) </dev/null >"$LABS/$lab/$name/link.log" 2>&1 &
}

# Both taps have a carrier while link.py holds them; 10 s for it to come.
is_carried() {
    local space=$1 name=$2
    for _ in $(seq 100); do
        if [ "$(ip -n "$space" -o link show | grep -E "[nf][.]$name:.*[<,]LOWER_UP[,>]" -c)" -eq 2 ]; then return; fi
        sleep 0.1
    done
    return 1
}

link_good() {
    local lab=$1 name=$2 space=drupelet-$1 device
    empty_cgroups "$space-$name-link"
    ip -n "$space" link set "$name" master lab
    for device in "n.$name" "f.$name" "far.$name"; do
        ip -n "$space" link del "$device" 2>/dev/null || true # it was good already
    done
}

# Master connections of ssh, which would wait for hosts that are gone.
masters_down() {
    local socket
    for socket in "$LABS/$1"/ssh-*; do
        [ ! -S "$socket" ] || ssh -o ControlPath="$socket" -O exit host 2>/dev/null || rm -f "$socket" # its master has ended
    done
}

# A host goes as if its plug were pulled: an orderly stop would wait for services that wait for other hosts.
host_down() {
    local lab=$1 name=$2 dir=$LABS/$1/$2 space=drupelet-$1-$2
    masters_down "$lab"
    empty_cgroups "$space-link"
    empty_cgroups "$space"
    if [ -e "/run/netns/$space" ]; then ip netns del "$space"; fi
    if mountpoint -q "$dir/root"; then umount "$dir/root" || umount -l "$dir/root"; fi
}

down() {
    local lab=$1 dir
    for dir in "$LABS/$lab"/*/; do
        if [ -d "$dir" ]; then host_down "$lab" "$(basename "$dir")"; fi
    done
    if [ -e "/run/netns/drupelet-$lab" ]; then ip netns del "drupelet-$lab"; fi
    if grep -q " $LABS/$lab/" /proc/mounts; then
        echo "Something is still mounted below $LABS/$lab: it is kept." >&2
        exit 1
    fi
    rm -rf "${LABS:?}/$lab"
}

stranger() {
    local lab=$1 address=$2
    if [ ! -e "$LABS/$lab/stranger" ]; then
        mkdir "$LABS/$lab/stranger"
        host_network_up "$lab" stranger "$address"
    fi
    exec nsenter --net="/run/netns/drupelet-$lab-stranger" "${@:3}"
}

case ${1:-} in
root) make_root "$2" ;;
up) up "$2" "$3" "$4" "$5" ;;
restart) restart "$2" "$3" ;;
memory) memory "$2" "$3" "$4" ;;
down) down "$2" ;;
link)
    case $4 in
    bad) link_bad "$2" "$3" "$5" "$6" "$7" ;;
    cut) link_bad "$2" "$3" 0 100 0 ;;
    good) link_good "$2" "$3" ;;
    *) usage ;;
    esac
    ;;
stranger) stranger "${@:2}" ;;
ssh) exec nsenter --net="/run/netns/drupelet-$2" ssh "${@:3}" ;;
*) usage ;;
esac
