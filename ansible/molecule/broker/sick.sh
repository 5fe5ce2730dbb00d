#!/usr/bin/env bash
# Plants secrets where they may lie, stops the broker, and has the board's disk take no more writes.
set -euo pipefail
cd /
printf 'planted-file\n' >/etc/drupelet/mirror-password
printf '# password = "planted-toml"\n' >>/etc/drupelet/broker.toml
mkdir -p /etc/systemd/system/edge-broker.service.d /etc/NetworkManager/system-connections
printf '[Service]\nEnvironment=SASL_PASSWORD=planted-environment\n' >/etc/systemd/system/edge-broker.service.d/own.conf
printf '[wifi-security]\npsk=planted-psk\n' >/etc/NetworkManager/system-connections/site.nmconnection
for name in file toml environment psk vault; do echo "sick board says planted-$name"; done | systemd-cat -t edge-broker -p warning
echo "sick board tried password=planted-line" | systemd-cat -p warning
journalctl --sync
systemctl daemon-reload
systemctl stop edge-broker
for folder in /etc /home /opt /root /srv /tmp /var/lib /var/tmp; do
    mount --bind "$folder" "$folder"
    mount -o remount,bind,ro "$folder"
done
touch /run/sick
