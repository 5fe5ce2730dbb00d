"""Names that no first user of a board may have, with the reason: an image or a role has them already.

PURE. `useradd` refuses the name of a user, and of a group as well (it would make one of the same name); `groupmod`, by
which userconf-pi renames the first user, does the same. A board without its first user allows no log-in.

Sources: base-passwd's passwd.master and group.master of Debian 12 and 13 (the same names); systemd's sysusers.d; the
maintainer scripts of packages in the images of Raspberry Pi OS, Debian and Ubuntu; the roles of ansible/.
Does not contain names that USER of settings.py refuses by their form, such as `www_data` and `_apt`.
"""

_BASE_USERS = "daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody"
_BASE_GROUPS = (
    "adm tty disk kmem dialout fax voice cdrom floppy tape sudo audio dip operator src shadow utmp video sasl plugdev "
    "staff users nogroup"
)
_SYSTEM = (
    "systemd-journal systemd-journal-remote systemd-network systemd-resolve systemd-timesync systemd-coredump "
    "systemd-oom input render kvm sgx clock empower messagebus polkitd sshd ssh ssl-cert netdev crontab plocate uuidd "
    "tss dnsmasq statd tcpdump landscape pollinate syslog lxd fwupd-refresh dhcpcd usbmux whoopsie"
)
_RASPBERRY_PI_OS = (
    "i2c spi gpio bluetooth avahi avahi-autoipd lpadmin saned scanner colord lightdm geoclue rtkit pulse pulse-access "
    "pipewire nm-openvpn nm-openconnect cups-pk-helper hplip speech-dispatcher kernoops rpi-first-boot-wizard"
)
_ROLES = "edge-broker edge-gateway edge-mirror edge-spark kafka mosquitto"
_REASONS = {
    _BASE_USERS: "a system user of every image",
    _BASE_GROUPS: "a group of every image",
    _SYSTEM: "a system user or group of some images",
    _RASPBERRY_PI_OS: "a system user or group of Raspberry Pi OS",
    _ROLES: "a service's user, which the playbooks make",
}
TAKEN: dict[str, str] = {name: reason for names, reason in _REASONS.items() for name in names.split()}
"""Why a name is taken, by name."""
