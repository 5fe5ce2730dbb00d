"""Where the programs are that the tests run but pip cannot install: Java, mosquitto, kcat, makers of images, jars.

What is missing raises MissingRuntimeError, which names it and the remedy; nothing is ever skipped. Only the standard
library, and parts of ours that keep to it, may be imported here: the set-up runs `python3 -m tests.support.runtimes`
before there is an environment. Only jars need one: pyspark brings Ivy, which fetches them.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from drupelet.errors import ConfigurationError
from spark.jvm.jars import cached_jars, jars_directory
from spark.jvm.java import java_home

KAFKA_LOCK = Path(__file__).parents[2] / "ansible/roles/kafka/files/kafka-4.3.1.jars"
MIRRORMAKER_LOCK = Path(__file__).with_name("mirrormaker-4.3.1.jars")
OLD_KAFKA_LOCK = Path(__file__).with_name("kafka-3.9.2.jars")
ZOOKEEPER_LOCK = Path(__file__).with_name("zookeeper-3.9.5.jars")
# For a JVM that runs for seconds: half the processor time of a start. A benchmark takes the stock options.
QUICK_JAVA = ("-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class MissingRuntimeError(RuntimeError):
    """A program that the tests need is not on this machine; the message is one sentence with the remedy."""


def console_script(name: str) -> Path:
    """Return the path of one of our commands in this interpreter's environment."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise MissingRuntimeError(f"{name} is not in {path.parent}: run `make install-deps` first.")
    return path


def _program(name: str, package: str) -> Path:
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/sbin"])
    found = shutil.which(name, path=search)
    if found is None:
        raise MissingRuntimeError(f"{name} is not installed: `apt install {package}`.")
    return Path(found)


def mosquitto() -> Path:
    """Return the mosquitto server."""
    return _program("mosquitto", "mosquitto")


def mosquitto_passwd() -> Path:
    """Return mosquitto_passwd, which hashes passwords for mosquitto."""
    return _program("mosquitto_passwd", "mosquitto")


def openssl() -> Path:
    """Return openssl, which makes certificates."""
    return _program("openssl", "openssl")


def mosquitto_pub() -> Path:
    """Return mosquitto_pub, the MQTT client that the documents show."""
    return _program("mosquitto_pub", "mosquitto-clients")


def rsyslogd() -> Path:
    """Return rsyslogd, whose imfile follows files as the gateway does."""
    return _program("rsyslogd", "rsyslog")


def kcat() -> Path:
    """Return kcat, the librdkafka command line."""
    return _program("kcat", "kcat")


def zsh() -> Path:
    """Return zsh, whose completion is tested in one that runs."""
    return _program("zsh", "zsh")


def man() -> Path:
    """Return man, which shows the pages."""
    return _program("man", "man-db")


def mcopy() -> Path:
    """Return mtools' mcopy, which edge-board flash writes FAT partitions with."""
    return _program("mcopy", "mtools")


def mke2fs() -> Path:
    """Return mke2fs, which makes root file systems; debugfs comes with it."""
    return _program("mke2fs", "e2fsprogs")


def mkfs_vfat() -> Path:
    """Return mkfs.vfat, which makes boot partitions."""
    return _program("mkfs.vfat", "dosfstools")


def sfdisk() -> Path:
    """Return sfdisk, which makes partition tables."""
    return _program("sfdisk", "fdisk")


@functools.cache
def java() -> Path:
    """Return the `java` of version 17 or 21 that edge-spark uses, too."""
    try:
        return java_home() / "bin/java"
    except ConfigurationError as error:
        raise MissingRuntimeError(f"{error}.") from None


def kafka_java(*options: str, folder: Path | None = None) -> list[str]:
    """Return the start of a command line that runs a main class of Apache Kafka; the class name goes after it.

    `folder` has the jars, those of 4.3.1 unless told.
    """
    return [str(java()), *options, "-cp", f"{folder or kafka_jars()}/*"]


def kafka_jars() -> Path:
    """Return the folder with Apache Kafka 4.3.1's jars, fetched into the cache when it is not there."""
    return jars(KAFKA_LOCK, "kafka-4.3.1")


def old_kafka_jars() -> Path:
    """Return the folder with Apache Kafka 3.9.2's jars; it still answers versions that 4.0 dropped (KIP-896)."""
    return jars(OLD_KAFKA_LOCK, "kafka-3.9.2")


def mirrormaker_jars() -> Path:
    """Return the folder with what MirrorMaker 2 needs beside Apache Kafka 4.3.1's jars."""
    return jars(MIRRORMAKER_LOCK, "mirrormaker-4.3.1")


def zookeeper_jars() -> Path:
    """Return the folder with Apache ZooKeeper 3.9.5's jars."""
    return jars(ZOOKEEPER_LOCK, "zookeeper-3.9.5")


@functools.cache
def jars(lock: Path, name: str) -> Path:
    """Return the cache folder that holds the jars of a lock file, fetching what it lacks.

    A lock file has a line `SHA256  GROUP:ARTIFACT:VERSION` per jar.
    """
    lines = [line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    try:
        cached_jars(name, {pin: digest for digest, pin in lines}, "tests/support/setup.sh jars")
    except ConfigurationError as error:
        raise MissingRuntimeError(f"{error}.") from error
    return jars_directory(name)


def libfaketime() -> Path:
    """Return the library that shows a program another time of day."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not found:
        raise MissingRuntimeError("libfaketime.so.1 is not in /usr/lib: `apt install libfaketime`.")
    return found[0]


RUNTIMES: dict[str, Callable[[], Path]] = {
    "java": java,
    "mosquitto": mosquitto,
    "mosquitto-clients": mosquitto_pub,
    "rsyslog": rsyslogd,
    "kcat": kcat,
    "zsh": zsh,
    "man-db": man,
    "mtools": mcopy,
    "e2fsprogs": mke2fs,
    "dosfstools": mkfs_vfat,
    "fdisk": sfdisk,
    "libfaketime": libfaketime,
    "kafka-jars": kafka_jars,
    "old-kafka-jars": old_kafka_jars,
    "mirrormaker-jars": mirrormaker_jars,
    "zookeeper-jars": zookeeper_jars,
}


def main() -> int:
    """Print where the named runtimes are; 1 and a sentence on stderr for each that is missing."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.support.runtimes", description=main.__doc__)
    parser.add_argument("names", nargs="*", choices=[*RUNTIMES, []], metavar="NAME", help=", ".join(RUNTIMES))
    status = 0
    for name in parser.parse_args().names or RUNTIMES:
        try:
            print(f"{name}: {RUNTIMES[name]()}")
        except MissingRuntimeError as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
