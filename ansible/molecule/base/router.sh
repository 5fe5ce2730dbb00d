#!/usr/bin/env bash
# What a board has that routes for others: a network behind it, and rules of its own, in the kernel and for the next boot.
# usage: router.sh up     makes them, once
#        router.sh knock ADDRESS   from the network behind the board, through it: prints `through` or `dropped`
set -euo pipefail
case $1 in
up)
    cat >/etc/nftables.conf <<'RULES'
#!/usr/sbin/nft -f
flush ruleset
table ip router {
    chain postrouting {
        type nat hook postrouting priority srcnat;
        ip saddr 172.20.0.0/24 masquerade
    }
}
RULES
    nft -f /etc/nftables.conf
    # As Docker has them: in the kernel alone.
    nft add table ip bridge-of-containers
    ;;
esac
if ! ip netns list | grep -q '^behind'; then
    ip netns add behind
    ip link add inside type veth peer name eth0 netns behind
    ip addr add 172.20.0.1/24 dev inside
    ip link set inside up
    ip -n behind link set lo up
    ip -n behind addr add 172.20.0.2/24 dev eth0
    ip -n behind link set eth0 up
    ip -n behind route add default via 172.20.0.1
fi
case $1 in
up)
    [ "$("$0" knock "$2")" = through ]
    ;;
knock)
    # Nobody listens there: a refusal is an answer too.
    status=0
    ip netns exec behind timeout 3 bash -c "exec 3<>/dev/tcp/$2/9" 2>/dev/null || status=$?
    if [ $status = 124 ]; then echo dropped; else echo through; fi
    ;;
esac
