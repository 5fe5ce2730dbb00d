#!/usr/bin/env bash
# Debian with the programs that read a card's first-boot files. Made once, in about a minute. Needs root and mmdebstrap.
#   readers.sh root SUITE                      make it unless it is there, print where it is; trixie or bookworm
#   readers.sh run SUITE FOLDER COMMAND ...    run a command in a throw-away copy of it, with FOLDER as /case, no network
# A copy is an overlay in namespaces of its own: no mount and no process outlives the command, and nothing of this
# machine is seen but /dev.
set -euo pipefail
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/drupelet/roots
declare -A PACKAGES=(
    [trixie]="cloud-init netplan.io network-manager openssh-server sudo tzdata"
    # What Raspberry Pi's own first boot of bookworm calls; for tests/golden/upstream/run.sh.
    [bookworm]="network-manager openssh-server sudo tzdata python3-toml whiptail psmisc wpasupplicant rfkill iw procps
        keyboard-configuration console-setup systemd-sysv dhcpcd5"
)

make_root() {
    local suite=$1 root
    local packages=${PACKAGES[$suite]:?}
    root=$CACHE/readers-$suite-$(sha256sum <<<"$packages" | cut -c1-8)
    mkdir -p "$CACHE"
    exec 7>"$CACHE/readers-$suite.lock"
    flock 7
    if [ ! -d "$root" ]; then
        rm -rf --one-file-system "$root.part"
        # Its mounts are in a namespace of their own: they end with it, also when it is killed.
        TMPDIR=/dev/shm unshare --mount mmdebstrap --quiet --variant=minbase --include="$packages" \
            --dpkgopt=path-exclude='/usr/share/doc/*' --dpkgopt=path-exclude='/usr/share/man/*' \
            --dpkgopt=path-exclude='/usr/share/locale/*' "$suite" "$root.part" >&2 7>&-
        mv "$root.part" "$root"
    fi
    exec 7>&-
    echo "$root"
}

# Runs in the namespaces.
enter() {
    local root=$1 folder=$2 work=/dev/shm # covered for these processes alone
    shift 2
    mount -t tmpfs tmpfs "$work"
    mkdir "$work"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" "$work/root"
    mkdir "$work/root/case"
    mount --bind "$folder" "$work/root/case"
    mount -t tmpfs tmpfs "$work/root/run"
    mount -t proc proc "$work/root/proc"
    cd "$work/root"
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 chroot . "$@"
}

case ${1:-} in
root) make_root "$2" ;;
run)
    root=$(make_root "$2")
    folder=$(realpath "$3")
    exec unshare --mount --pid --net --uts --ipc --fork --kill-child "$0" enter "$root" "$folder" "${@:4}"
    ;;
enter) enter "${@:2}" ;;
*)
    sed -n '2,/^set/{/^#/p}' "$0" >&2
    exit 2
    ;;
esac
