#!/bin/sh
# What the programs of Debian trixie say of a card's files, run in a copy of it (tests/support/readers.sh). /case/boot has
# those of the boot partition, /case/root those of the root file system; answers go to /case/said, one file each.
set -u
mkdir -p /case/said /case/rendered/etc/netplan
# As the flashing does it: folders that are there keep their mode and owner.
if [ -d /case/root ]; then tar -C /case/root -c . | tar -C / -x -p --no-overwrite-dir; fi
cd /case/boot || exit 1

# cloud-init renders network-config by netplan's library into /etc/netplan, then looks for a running systemd.
if [ -e user-data ]; then cloud-init schema --config-file user-data >/case/said/user-data 2>&1; fi
if [ -e network-config ]; then
    cloud-init schema --schema-type network-config --config-file network-config >/case/said/network-config 2>&1
    cloud-init devel net-convert --network-data network-config --kind yaml --output-kind netplan --directory /tmp/unused \
        --distro debian >/case/said/net-convert 2>&1
    cp /etc/netplan/50-cloud-init.yaml /case/rendered/etc/netplan/
fi
if [ -e /case/renderer ]; then
    printf 'network: {version: 2, renderer: %s}\n' "$(cat /case/renderer)" >/case/rendered/etc/netplan/00-renderer.yaml
fi
chmod 600 /case/rendered/etc/netplan/*
/usr/libexec/netplan/generate --root-dir /case/rendered >/case/said/netplan 2>&1
echo "exit $?" >>/case/said/netplan

# NetworkManager's own reader: what it does not take it names, and the profile comes out in its own words.
mkdir -p /case/profiles
for file in /case/rendered/run/NetworkManager/system-connections/* /etc/NetworkManager/system-connections/*; do
    [ -f "$file" ] || continue
    profile=/case/profiles/$(basename "$file")
    nmcli --offline connection modify connection.autoconnect-retries 3 <"$file" >"$profile" 2>>/case/said/nmcli
done

for file in /etc/sudoers.d/*; do
    [ -f "$file" ] && visudo --check --strict --file="$file" >>/case/said/visudo 2>&1
done
mkdir -p /run/sshd
sshd -T >/case/said/sshd 2>&1
