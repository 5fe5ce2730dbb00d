"""Return warnings about a configuration on this host: open ports, secrets that all may read, missing files.

Each warning is one sentence with its remedy. Uses files' names and modes, never their content; opens no connection.
"""

from __future__ import annotations

import glob
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from drupelet.addresses import host_and_port, is_loopback
from drupelet.errors import reason
from drupelet.printable import name_text, shell_word
from drupelet.tls.secret_files import changeable, exposure
from gateway.config import FileConfig, GatewayConfig, JournalConfig, MosquittoConfig
from gateway.sources.file_reading.links import irregular_kind, rule_for
from gateway.sources.files.matches import CANDIDATES_MAX, find_matches
from gateway.systemd_journal.directory import PERSISTENT, VOLATILE

LEFT_OUT_MAX = 10


def security(config: GatewayConfig) -> list[str]:
    """Return the settings that give access, or a password, to an unauthorized client."""
    return [*_open_ports(config), *_open_files(config), *_open_authorities(config)]


def missing(config: GatewayConfig) -> list[str]:
    """Return the sources that do not exist; the gateway waits for them."""
    found = [told for file in config.files if (told := _missing_file(file)) is not None]
    if config.journal is not None:
        found += _missing_journal(config.journal)
    return found


def _missing_journal(config: JournalConfig) -> list[str]:
    if config.directory is not None:
        return [] if config.directory.is_dir() else [f"journal.directory {config.directory} is not there."]
    if PERSISTENT.is_dir() or VOLATILE.is_dir():
        return []
    return [f"neither {PERSISTENT} nor {VOLATILE} is there: [journal] needs systemd, else follow [[files]]."]


def unreadable_paths(config: GatewayConfig) -> Iterator[str]:
    """Return for each path of [[files]] that can never be followed the reason, as a sentence."""
    for file in config.files:
        if file.is_pattern and not _is_there(file.path):
            continue
        kind = _kind_of(file)
        if kind == "a link":
            yield f"files.path {file.path} is a link: name what it points to, or set follow_links = true."
        elif kind == "a directory":
            yield f"files.path {file.path} is a directory: name the files in it, such as {file.path}/*.log."
        elif kind:
            yield f"files.path {file.path} is {kind}: name a regular file; the gateway follows no other."


def left_out(config: GatewayConfig) -> Iterator[str]:
    """Return which files a pattern of [[files]] leaves out, at most LEFT_OUT_MAX of each pattern."""
    for file in config.files:
        if not file.is_pattern or _is_there(file.path):
            continue
        try:
            matches = find_matches(file.path, follow_links=file.follow_links)
        except OSError as error:
            yield f"files.path {file.path} cannot be looked for ({reason(error)})."
            continue
        named = sorted(matches.left_out.items())
        for path, why in named[:LEFT_OUT_MAX]:
            yield f"files.path {file.path} leaves {name_text(path)} out: {why}."
        if len(named) > LEFT_OUT_MAX:
            yield f"files.path {file.path} leaves {len(named) - LEFT_OUT_MAX} more files out."
        if matches.beyond_bound:
            yield f"files.path {file.path} matches more than {CANDIDATES_MAX} files: the rest is never read; narrow it."


def _kind_of(file: FileConfig) -> str:
    try:
        return irregular_kind(rule_for(file.path, follows=file.follow_links).status(file.path))
    except OSError:
        return ""


def unwatched_losses(config: GatewayConfig) -> list[str]:
    """Return the losses that the configuration leaves without a watch."""
    mqtt, found = config.mqtt, []
    if mqtt is not None and not mqtt.watch_drops:
        found.append(
            "mqtt.watch_drops is false: messages that mosquitto drops from a full queue are in no ledger record; "
            "only a gap in the devices' own seq shows them."
        )
    if mqtt is not None and not mqtt.watch_oversize:
        found.append(
            "mqtt.watch_oversize is false: /health does not name a device whose packets are too large for mosquitto."
        )
    return found


def mosquitto(config: GatewayConfig) -> list[str]:
    """Return the paths of [mosquitto] that a mosquitto on this host would not find, or could not write."""
    if not config.mosquitto_given:
        return []
    settings = config.mosquitto
    keys = ("password_file", "ssl_ca_file", "ssl_cert_file", "ssl_key_file")
    paths = [(key, getattr(settings, key)) for key in keys]
    found = [f"mosquitto.{key} {path} is not there." for key, path in paths if path is not None and not _is_there(path)]
    told = persistence_trouble(settings)
    return found if told is None else [*found, f"{told}."]


def persistence_trouble(config: MosquittoConfig) -> str | None:
    """Return why mosquitto cannot write its sessions and queues; None also if that cannot be checked."""
    directory, user = config.persistence_dir, config.user
    name = f"mosquitto.persistence_dir {directory}"
    loss = "mosquitto would lose sessions and queues when it stops"
    make = f"install -d -m 700 -o {shell_word(user)} {shell_word(directory)}"
    try:
        status = directory.stat()
        read_only = os.statvfs(directory).f_flag & os.ST_RDONLY
    except (FileNotFoundError, NotADirectoryError):
        return f"{name} is not there: `{make}`; {loss}"
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return f"{name} is no directory: move it away, then `{make}`; {loss}"
    if read_only:
        return f"{name} is on a disk that is mounted read-only; {loss}"
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return f"mosquitto.user {user} is no user of this host: install mosquitto, or name another"
    if _may_write(status, entry):
        return None
    mend = "chmod u+rwx" if status.st_uid == entry.pw_uid else f"chown {shell_word(user)}"
    return f"{name} cannot be written by {user}: `{mend} {shell_word(directory)}`; {loss}"


def _open_ports(config: GatewayConfig) -> Iterator[str]:
    settings, mqtt = config.mosquitto, config.mqtt
    for key, listeners in (("listeners", settings.listeners), ("tls_listeners", settings.tls_listeners)):
        known = settings.password_file is not None or (key == "tls_listeners" and settings.require_certificate)
        for host, port in listeners:
            if not is_loopback(host) and not known:
                yield f"mosquitto.{key} {host}:{port} lets anyone publish: set mosquitto.password_file."
            elif not is_loopback(host) and key == "listeners":
                yield f"mosquitto.listeners {host}:{port} takes passwords in clear text: move it to tls_listeners."
    if mqtt is not None and mqtt.username is not None and not mqtt.tls and not is_loopback(mqtt.host):
        yield f"mqtt sends its password to {mqtt.host} in clear text: set mqtt.tls or mqtt.ssl_ca_file."
    if config.kafka.security.shows_password:
        for host, _ in map(host_and_port, config.kafka.bootstrap_servers):
            if not is_loopback(host):
                yield f"kafka sends its password to {host} in clear text: set kafka.security_protocol to SASL_SSL."


def _open_files(config: GatewayConfig) -> Iterator[str]:
    """Yield a warning for each secret of mosquitto that others may use; `config` refuses the gateway's own."""
    settings = config.mosquitto
    for key, path in (("password_file", settings.password_file), ("ssl_key_file", settings.ssl_key_file)):
        try:
            said = "" if path is None else exposure(path.stat(), path)
        except OSError:  # it does not exist, or is in a directory that only mosquitto may enter
            continue
        if said:
            yield f"mosquitto.{key} is {path}, which {said}."


def _open_authorities(config: GatewayConfig) -> Iterator[str]:
    """Yield a warning for each CA file that others may change; no refusal, as running sites may have such files."""
    mqtt, mosquitto_s = config.mqtt, config.mosquitto.ssl_ca_file
    found = [config.kafka.security.ca_note("kafka.ssl_ca_file")]
    if mqtt is not None and mqtt.ssl_ca_file is not None:
        found.append(changeable(mqtt.ssl_ca_file, "mqtt.ssl_ca_file"))
    if mosquitto_s is not None:
        found.append(changeable(mosquitto_s, "mosquitto.ssl_ca_file", of_other_service=True))
    yield from (f"{said}." for said in found if said)


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # a directory that only mosquitto may enter
        return True
    return True


def _missing_file(file: FileConfig) -> str | None:
    path = file.path
    if _is_there(path):
        return None if os.access(path, os.R_OK) else f"files.path {path} cannot be read by this user."
    if not glob.has_magic(str(path.parent)) and not _is_there(path.parent):
        return f"files.path {path}: the directory {path.parent} is not there."
    if not file.is_pattern:
        return f"files.path {path} is not there."
    return None if any(glob.iglob(str(path), recursive=True)) else f"files.path {path}: no file matches."


def _may_write(status: os.stat_result, entry: pwd.struct_passwd) -> bool:
    """Return whether a user may make files in a directory, by its mode alone; access lists are not looked at."""
    mode = status.st_mode
    if entry.pw_uid == 0:
        return True
    if status.st_uid == entry.pw_uid:
        return mode & 0o300 == 0o300
    if status.st_gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        return mode & 0o030 == 0o030
    return mode & 0o003 == 0o003
