#!/usr/bin/env bash
# Makes the root file system of a board once and prints where it is: Debian trixie for arm64, with what Raspberry Pi OS
# trixie has and what the roles would take from apt. About ten minutes. Needs root, mmdebstrap and qemu-user-static.
#   root.sh     -> ~/.cache/drupelet/roots/card-trixie-CHECKSUM
set -euo pipefail
SUITE=trixie
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/drupelet/roots
BINFMT=/proc/sys/fs/binfmt_misc
# What the image has: kernel, cloud-init, network, ssh, sudo, Python. What apt would bring: the last line.
PACKAGES=(systemd-sysv dbus udev kmod procps linux-image-cloud-arm64 initramfs-tools zstd cloud-init netplan.io iproute2
    openssh-server sudo tzdata python3 python3-apt
    python3-venv nftables chrony unattended-upgrades systemd-zram-generator)
export QEMU_CPU=cortex-a72 # the emulator's default CPU is seventeen times slower

# Lets the kernel run arm64 programs; on a machine with systemd the package qemu-user-static has done so.
register() {
    [ -e "$BINFMT/register" ] || mount -t binfmt_misc binfmt_misc "$BINFMT"
    [ -e "$BINFMT/qemu-aarch64" ] || cat /usr/lib/binfmt.d/qemu-aarch64.conf >"$BINFMT/register"
}

# The initramfs has the one driver that the kernel lacks for the emulator's disk, which makes it small and quick.
make_root() {
    local root=$1 conf="\"\$1/etc/initramfs-tools/conf.d\""
    register
    rm -rf --one-file-system "$root.part"
    # Its mounts are in a namespace of their own: they end with it, also when it is killed.
    TMPDIR=/dev/shm unshare --mount mmdebstrap --quiet --skip=check/qemu --architectures=arm64 --variant=minbase \
        --include="${PACKAGES[*]}" --dpkgopt=path-exclude='/usr/share/doc/*' --dpkgopt=path-exclude='/usr/share/man/*' \
        --dpkgopt=path-exclude='/usr/share/locale/*' \
        --essential-hook="mkdir -p $conf && printf 'MODULES=list\nCOMPRESS=zstd\n' >$conf/card" \
        --essential-hook="echo virtio_blk >\"\$1/etc/initramfs-tools/modules\"" \
        "$SUITE" "$root.part" >&2
    mv "$root.part" "$root"
}

mkdir -p "$CACHE"
root=$CACHE/card-$SUITE-$(sha256sum <<<"${PACKAGES[*]}" | cut -c1-8)
[ -d "$root" ] || make_root "$root"
echo "$root"
