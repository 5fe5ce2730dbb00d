#!/usr/bin/env bash
# Lays a root file system out as Raspberry Pi OS trixie does: partition table, FAT32 bootfs at 8 MiB, ext4 rootfs, and the
# files by which its first boot is configured. Nothing is mounted. Needs root, fdisk, dosfstools, mtools and e2fsprogs.
#   image.sh ROOT IMAGE SIZE_MIB
set -euo pipefail
base=$1 image=$2 size_mib=$3
BOOT_MIB=8 BOOT_SIZE_MIB=96 ROOT_MIB=104
DISK_ID=3a5b7c9d

# As pi-gen leaves it: ssh off, no host keys, no machine id, kernel names for interfaces, cloud-init reads bootfs.
# Only the network's renderer differs: systemd-networkd, where the real image has NetworkManager.
write_root() {
    local root=$1
    cp -a "$base" "$root"
    rm -f "$root"/etc/ssh/ssh_host_* "$root"/etc/resolv.conf "$root"/etc/hostname
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
    rm -f "$root"/etc/systemd/system/{multi-user.target.wants/ssh.service,sockets.target.wants/ssh.socket}
    ln -s /dev/null "$root/etc/systemd/network/99-default.link"
    ln -s /usr/lib/systemd/system/systemd-networkd.service "$root/etc/systemd/system/multi-user.target.wants/"
    : >"$root/etc/machine-id"
    mkdir -p "$root/boot/firmware"
    printf 'LABEL=bootfs /boot/firmware vfat defaults 0 2\nPARTUUID=%s-02 / ext4 defaults,noatime 0 1\n' "$DISK_ID" \
        >"$root/etc/fstab"
    cat >"$root/etc/cloud/cloud.cfg.d/99_raspberry-pi.cfg" <<'CLOUD'
datasource_list: [NoCloud, None]
datasource:
  NoCloud:
    seedfrom: file:///boot/firmware
ssh_genkeytypes: [ed25519]
resize_rootfs: false
CLOUD
}

# What the firmware of a Pi reads, in the words of the real image.
write_boot() {
    local folder=$1
    mkdir "$folder"
    mv "$work"/root/boot/vmlinuz-* "$folder/kernel8.img"
    mv "$work"/root/boot/initrd.img-* "$folder/initramfs8"
    echo "console=serial0,115200 console=tty1 root=PARTUUID=$DISK_ID-02 rootfstype=ext4 fsck.repair=yes rootwait resize" \
        >"$folder/cmdline.txt"
    printf 'dtparam=audio=on\narm_64bit=1\nauto_initramfs=1\n\n[cm4]\notg_mode=1\n' >"$folder/config.txt"
    printf '#cloud-config\n# hostname: raspberrypi\n' >"$folder/user-data"
    printf 'dsmode: local\ninstance_id: rpios-image\n' >"$folder/meta-data"
    printf '# network:\n#   version: 2\n' >"$folder/network-config"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
write_root "$work/root"
write_boot "$work/boot"
rm -f "$image"
truncate --size="${size_mib}M" "$image"
sfdisk --quiet "$image" <<TABLE
label: dos
label-id: 0x$DISK_ID
start=${BOOT_MIB}MiB, size=${BOOT_SIZE_MIB}MiB, type=c
start=${ROOT_MIB}MiB, type=83
TABLE
mkfs.vfat -F 32 -s 1 -n bootfs --offset=$((BOOT_MIB * 2048)) "$image" $((BOOT_SIZE_MIB * 1024)) >/dev/null
mcopy -i "$image@@${BOOT_MIB}M" "$work"/boot/* ::
mke2fs -q -F -t ext4 -L rootfs -d "$work/root" -E offset=$((ROOT_MIB << 20)) "$image" "$((size_mib - ROOT_MIB))M"
