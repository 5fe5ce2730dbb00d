# Prints what a host is, a line for each thing, for preflight.yml, in POSIX sh: the host may have no Python. Nothing is
# changed. Everything is asked for; what cannot be told has an empty value.
# shellcheck shell=sh
LC_ALL=C
export LC_ALL
root=${DRUPELET_ROOT:-/opt/drupelet} proc=${PROC:-/proc} # another one for the tests
# shellcheck disable=SC1091 # the host's
[ ! -r /etc/os-release ] || . /etc/os-release
echo "system ${ID:-} ${VERSION_ID:-0} ${VERSION_CODENAME:--} ${PRETTY_NAME:-}"
echo "architecture $(dpkg --print-architecture 2>/dev/null || uname -m)"
echo "python $(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
[ ! -d /run/systemd/system ] || echo "systemd running"
while read -r key value _; do
    [ "$key" != MemTotal: ] || echo "memory_mb $((value / 1024))"
done <"$proc/meminfo"
echo "release $(readlink "$root/current" 2>/dev/null)"
echo "bundle $(head -n 1 "${DRUPELET_STATE:-/var/lib/drupelet}/bundle-serial" 2>/dev/null)"
folder=$root
while [ ! -d "$folder" ]; do folder=${folder%/*}/; folder=${folder%/}; [ -n "$folder" ] || folder=/; done
df -Pk "$folder" 2>/dev/null | while read -r _ _ _ free _; do
    case $free in *[!0-9]* | "") ;; *) echo "free_mb $((free / 1024))" ;; esac
done
systemctl list-units --plain --no-legend --no-pager --state=active 'edge-*.service' kafka.service mosquitto.service 2>/dev/null |
    while read -r unit _; do
        echo "runs $unit"
    done
# Log-ins that the broker of this host has, and how their passwords come from security_secret.
etc=${DRUPELET_ETC:-/etc/drupelet} by_scrypt=" "
[ ! -r "$etc/broker-scrypt-log-ins" ] || while read -r user; do by_scrypt="$by_scrypt$user "; done <"$etc/broker-scrypt-log-ins"
[ ! -r "$etc/broker-log-ins" ] || while read -r user; do
    case $by_scrypt in *" $user "*) echo "log_in $user scrypt" ;; *) echo "log_in $user hmac" ;; esac
done <"$etc/broker-log-ins"
# Who listens where, and the unit that it belongs to.
ss -Hltnp 2>/dev/null | while read -r _ _ _ address _ who; do
    pid=${who#*pid=}
    pid=${pid%%,*}
    unit=$(sed -n 's|^[^/]*/\(.*/\)*\([^/]*[.]service\)\(/.*\)*$|\2|p' "$proc/$pid/cgroup" 2>/dev/null | head -n 1)
    echo "listens $address ${unit:--} $(cat "$proc/$pid/comm" 2>/dev/null)"
done
