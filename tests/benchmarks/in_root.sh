#!/usr/bin/env bash
# Runs a command in a throw-away copy of a Debian root, where each FOLDER is what it is here, and so are /proc, /sys and
# /dev. Mounts are in a namespace of their own and end with the command, which keeps this process's id. Needs root.
# usage: in_root.sh ROOT FOLDER ... -- COMMAND ...
set -euo pipefail

enter() {
    local root=$1 work=/dev/shm folder # covered for this process alone
    shift
    mount -t tmpfs tmpfs "$work"
    mkdir "$work"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" "$work/root"
    for folder in /proc /sys /dev; do mount --rbind "$folder" "$work/root$folder"; done
    while [ "$1" != -- ]; do
        mkdir -p "$work/root$1"
        mount --bind "$1" "$work/root$1"
        shift
    done
    exec chroot "$work/root" "${@:2}"
}

case ${1:-} in
enter) enter "${@:2}" ;;
/*) exec unshare --mount --propagation private "$0" enter "$@" ;;
*)
    sed -n '2,/^set/{/^#/p}' "$0" >&2
    exit 2
    ;;
esac
