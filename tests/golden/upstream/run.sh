#!/bin/sh
# What Raspberry Pi's own first boot makes of a card's files: the facts of the golden outcomes beside this file, on stdout.
# Run by hand, as root, in a copy of Debian bookworm:
#   tests/support/readers.sh run bookworm FOLDER sh /case/run.sh KIND
# FOLDER has this file, `boot` and `root` (tests.support.first_boot.lay_out_card) and `up` with upstream's programs:
# init_config, imager_custom, get_fw_loc, regenerate_ssh_host_keys, 010_pi-nopasswd (raspberrypi-sys-mods), userconf,
# cancel-rename (userconf-pi), raspi-config; for preseed `preseed`, a checkout of rpi-preseed. They are not ours to keep.
set -u
kind=$1 up=/case/up
{
    for name in init_config imager_custom get_fw_loc regenerate_ssh_host_keys; do
        install -D -m 755 "$up/$name" "/usr/lib/raspberrypi-sys-mods/$name"
    done
    install -D -m 755 "$up/userconf" /usr/lib/userconf-pi/userconf
    install -m 755 "$up/cancel-rename" "$up/raspi-config" /usr/bin/
    useradd -m -s /bin/bash -G adm,sudo,video -u 1000 pi
    [ "$kind" = bookworm ] || install -m 440 "$up/010_pi-nopasswd" /etc/sudoers.d/
    echo raspberrypi >/etc/hostname
    printf '127.0.0.1\tlocalhost\n127.0.1.1\traspberrypi\n' >/etc/hosts
    mkdir -p /boot/firmware
    cp /case/boot/* /boot/firmware/
    cp /case/boot/* /boot/
    systemctl disable ssh
    tar -C /case/root -c . | tar -C / -x -p --no-overwrite-dir
    /usr/lib/raspberrypi-sys-mods/regenerate_ssh_host_keys
    if [ "$kind" = preseed ]; then
        mkdir -p /usr/lib/rpi-preseed /usr/share/rpi-preseed
        cp -r /case/preseed/src/* /usr/lib/rpi-preseed/
        cp /case/preseed/schema/rpi-preseed.schema /usr/share/rpi-preseed/
        sh /usr/lib/rpi-preseed/rpi-preseed apply-base
    else
        /usr/lib/raspberrypi-sys-mods/init_config /boot/firmware/custom.toml
    fi
    status=$?
    mkdir -p /run/sshd
} >/case/log 2>&1
echo "exit: $status"
echo "given: $(sha256sum /case/boot/*.toml | cut -d ' ' -f 1)"
echo "hostname: $(cat /etc/hostname)"
echo "hosts: $(sed -n 's/^127\.0\.1\.1\s*//p' /etc/hosts)"
echo "user: $(getent passwd 1000)"
echo "password: $(getent shadow site | cut -d : -f 2)"
echo "keys: $(cat /home/site/.ssh/authorized_keys)"
echo "keys file: $(stat -c '%U %a' /home/site/.ssh /home/site/.ssh/authorized_keys | paste -s -d ' ')"
echo "sudo: $(sudo -l -U site 2>/dev/null | grep -c 'NOPASSWD: ALL')"
echo "sudoers: $(visudo -c >/dev/null 2>&1 && echo OK)"
echo "sshd: $(sshd -T | grep -E '^(passwordauthentication|hostkey) ' | sort | paste -s -d ' ')"
echo "ssh at boot: $([ -e /etc/systemd/system/multi-user.target.wants/ssh.service ] && echo yes)"
echo "timezone: $(cat /etc/timezone) $(readlink -f /etc/localtime)"
echo "profiles: $(find /etc/NetworkManager/system-connections -type f -printf '%f\n' | sort | paste -s -d ' ')"
echo "wlan later: $(grep -o 'do_wifi_ssid_passphrase .*;' /var/lib/raspberrypi-sys-mods/set-wlan 2>/dev/null)"
echo "country: $(grep -o 'cfg80211.ieee80211_regdom=..' /boot/firmware/cmdline.txt)"
