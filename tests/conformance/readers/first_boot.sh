#!/bin/sh
# cloud-init's whole first boot over /case/boot, in a copy of Debian trixie that has no systemd running: what would be asked
# of systemd, NetworkManager and the radio is written to /case/said/called. The outcome goes to /case/outcome.
set -u
mkdir -p /case/said /case/outcome /boot/firmware
# As the flashing does it: folders that are there keep their mode and owner.
if [ -d /case/root ]; then tar -C /case/root -c . | tar -C / -x -p --no-overwrite-dir; fi
cp /case/boot/* /boot/firmware/
cat >/etc/cloud/cloud.cfg.d/99_raspberry-pi.cfg <<'CLOUD'
datasource_list: [NoCloud, None]
datasource: {NoCloud: {seedfrom: "file:///boot/firmware"}}
CLOUD
for name in systemctl nmcli rfkill; do
    printf '#!/bin/sh\necho "%s $*" >>/case/said/called\ncase "$*" in *ActiveState*) echo active ;; esac\n' "$name" \
        >"/usr/local/bin/$name"
    chmod 755 "/usr/local/bin/$name"
done
for stage in "init --local" "init" "modules --mode config" "modules --mode final"; do
    # shellcheck disable=SC2086 # words
    cloud-init $stage
done >/case/said/cloud-init 2>&1
cloud-init status --format json >/case/said/status
cp -aL --parents /etc/hostname /etc/hosts /etc/passwd /etc/shadow /etc/group /etc/timezone /etc/default/keyboard \
    /etc/localtime /etc/netplan /etc/sudoers.d /etc/ssh /home /case/outcome 2>/case/said/copied
mkdir -p /run/sshd
ip link set lo up
# sshd detaches before it listens, and writes its PID file once it listens.
/usr/sbin/sshd && timeout 120 sh -c 'until [ -s /run/sshd.pid ]; do sleep 0.1; done' &&
    ssh-keyscan -T 60 127.0.0.1 >/case/said/keyscan 2>/case/said/keyscan-errors
sshd -T >/case/said/sshd 2>&1
visudo --check --strict >/case/said/visudo 2>&1
