#!/usr/bin/env bash
# A user whose password is right: the board's sshd refuses it, one that allows passwords lets it in, so it was right.
set -euo pipefail
export SSH_ASKPASS=/run/askpass SSH_ASKPASS_REQUIRE=force
trap '[ ! -e /run/sshd-other.pid ] || kill "$(cat /run/sshd-other.pid)"; userdel lab-password; rm -f $SSH_ASKPASS' EXIT
useradd --home-dir / --shell /bin/sh lab-password
echo lab-password:bramble-4711 | chpasswd
printf '#!/bin/sh\necho bramble-4711\n' >$SSH_ASKPASS
chmod 700 $SSH_ASKPASS

login() {
    ssh -o PubkeyAuthentication=no -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
        -o NumberOfPasswordPrompts=1 -p "$1" lab-password@127.0.0.1 echo in 2>&1 | tr -d '\r' || true
}
/usr/sbin/sshd -o PasswordAuthentication=yes -o PidFile=/run/sshd-other.pid -p 2222
for _ in $(seq 50); do [ ! -e /run/sshd-other.pid ] || break; sleep 0.1; done
[ "$(login 2222)" = in ]
[ "$(login 22)" = "lab-password@127.0.0.1: Permission denied (publickey)." ]
