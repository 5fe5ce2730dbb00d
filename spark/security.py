"""Translate the security keys (drupelet/kafka/security.py) to options of a job's Java client, without a secret.

A key and a password stay in their files. The options name the files in the form of Kafka's DirectoryConfigProvider
(KIP-632), and each client reads them itself: no option, log line, web page, event log, environment or argument has one.
Contains: options, and the checks of those files before a JVM starts. Does not contain: Spark, connections.
"""

import os

from drupelet.errors import ConfigurationError, reason
from drupelet.installation import built_s
from drupelet.kafka.security import SECURITY_KEYS, Security, security_from
from drupelet.tls.file_reads import read_named
from spark.config import Settings

PROVIDER = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
PROVIDERS = {"config.providers": "directory", "config.providers.directory.class": PROVIDER}
MODULES = {"PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule"}
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRETS = ("sasl.jaas.config", "password", "ssl.keystore.key")  # how the names of secret options end


def security_of(settings: Settings) -> Security:
    """Return the checked security settings of a job; raises ConfigurationError."""
    for key in settings.kafka:
        if key.endswith(SECRETS):
            raise ConfigurationError(
                f"--set {key}: every user of this host would see it in the list of processes: use sasl_username and"
                " sasl_password_file, or ssl_cert_file and ssl_key_file"
            )
    given = {key: value for key in SECURITY_KEYS if (value := getattr(settings, key))}
    security = security_from(given, ".", lambda key: f"--set {key}")
    if security.password is not None:
        check_password(security)
    if security.key_file is not None and "BEGIN PRIVATE KEY" not in text_of(security.key_file):
        raise ConfigurationError(
            f"--set ssl_key_file: {security.key_file} is no PKCS #8 key, the only kind that Java reads:"
            " openssl pkcs8 -topk8 -nodes -in OLD -out NEW"
        )
    return security


def check_password(security: Security) -> None:
    """Refuse a password that Java's client would read differently from other clients: it uses the file unchanged."""
    path = security.password_name
    text = text_of(path)
    if text != text.strip("\r\n"):
        raise ConfigurationError(
            f"--set sasl_password_file: {path} ends with a line end, which Java's client takes for a part of the"
            " password: write it without, as by printf %s"
        )
    if not text or any(mark in text for mark in '"\\\r\n'):
        raise ConfigurationError(
            f"--set sasl_password_file: {path} is empty, or has a quotation mark, a backslash or a line end in the"
            " password, which Java's client cannot be given: take another password"
        )


def text_of(path: str) -> str:
    """Read a small file; raises ConfigurationError."""
    try:
        return read_named(path).decode()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


def client_options(settings: Settings) -> dict[str, str]:
    """Return all options of a Java client of this job: its security, then those of `--set kafka.…`."""
    security = security_of(settings)
    options = {} if security.protocol == "PLAINTEXT" else {"security.protocol": security.protocol}
    if security.ca_file is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": security.ca_file}
    if security.cert_file is not None and security.key_file is not None:
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": content_of(security.cert_file),
            "ssl.keystore.key": content_of(security.key_file),
            **PROVIDERS,
        }
    if security.has_login:
        module = MODULES.get(security.mechanism, SCRAM_MODULE)
        user = security.username.replace("\\", "\\\\").replace('"', '\\"')
        password = content_of(security.password_name)
        options |= {
            "sasl.mechanism": security.mechanism,
            "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
            **PROVIDERS,
        }
    return options | {key.removeprefix("kafka."): value for key, value in settings.kafka.items()}


def content_of(path: str) -> str:
    """Return the reference by which the Java client reads a file's content itself."""
    folder, name = os.path.split(path)
    if any(mark in path for mark in ":}"):
        raise ConfigurationError(f"{path}: Java's client cannot be told a path with a colon or brace: rename it")
    return f"${{directory:{folder}:{name}}}"


def connector_options(settings: Settings) -> dict[str, str]:
    """Return the same options for Spark's connector, with the brokers."""
    options = {f"kafka.{key}": value for key, value in client_options(settings).items()}
    return {**options, "kafka.bootstrap.servers": settings.bootstrap}


def waits_for_clock(settings: Settings, now_s: float) -> bool:
    """Return whether TLS has to wait: Java checks certificates by the clock, which is before this version's date."""
    return security_of(settings).has_tls and now_s < built_s()
