"""The errors that every command prints, and the text of any error as a plain sentence.

Does not contain: an error that one part alone raises, an import of a client library, and anything that costs time to
import. Names of a library's classes are strings, so that no library has to be imported for them.
"""

import os
import re

from drupelet.printable import printable

SENTENCE_CHARACTERS_MAX = 300


class ConfigurationError(Exception):
    """One sentence that names the file, key or option, what is wrong, and the remedy; the command ends with exit 2."""


class CommandFailed(Exception):
    """One sentence that names what could not be done, why, and the remedy; the command ends with exit 1."""


# By the names of aiokafka's, kafka-python's and Python's classes; a subclass is found by its nearest base
_BY_CLASS = {
    "KafkaConnectionError": "the broker cannot be connected to, or closed the connection",
    "NoBrokersAvailable": "none of the bootstrap servers can be connected to",
    "KafkaUnavailableError": "no broker of the cluster is available",
    "KafkaTimeoutError": "the broker does not answer in time",
    "NodeNotReadyError": "the broker is not connected",
    "StaleMetadata": "the cluster's metadata is out of date",
    "MetadataEmptyBrokerList": "the cluster names none of its brokers yet",
    "UnrecognizedBrokerVersion": "the broker does not say which requests it serves",
    "IncompatibleBrokerVersion": "the broker does not serve a request that this client needs",
    "AuthenticationMethodNotSupported": "the broker does not know this SASL mechanism",
    "AuthenticationFailedError": "the broker refuses the user or the password",
    "CorrelationIdError": "the broker's response does not belong to the request",
    "KafkaProtocolError": "the broker's response does not follow the Kafka protocol",
    "TooManyInFlightRequests": "too many requests are in flight",
    "Cancelled": "the request was cancelled",
    "CommitFailedError": "the consumer group has rebalanced, so its offsets were not committed",
    "ProducerClosed": "the producer is closed",
    "ProducerFenced": "a newer producer uses the same transactional id",
    "ConsumerStoppedError": "the consumer is stopped",
    "NoOffsetForPartitionError": "the consumer group has no offset for the partition",
    "RecordTooLargeError": "the record is larger than the client sends",
    "UnsupportedCodecError": "the compression codec is not installed",
    "QuotaViolationError": "the client exceeds its quota",
    "WebsocketConnectionError": "the peer refuses the WebSocket connection",
    "CancelledError": "it was cancelled",
    "KeyError": "a key is missing",
    "IncompleteReadError": "the peer closed the connection within a message",
    "LimitOverrunError": "the peer sent more than is read at once",
    "TimeoutError": "no answer came in time",
    "MemoryError": "the memory is full",
    "RecursionError": "it is nested too deep",
    "EOFError": "the input ended too early",
}
_OWN_TEXT_FIRST = ("UnsupportedCodecError", "WebsocketConnectionError")  # their texts say more than their names
_BUILT_IN = ("builtins", "asyncio.exceptions", "concurrent.futures._base")
_ADDRESS = re.compile(r"\('([^']*)', (\d+)[^()]*\)")
_CODE = re.compile(r"\[Err(?:no|or) [^\]]*\] |\[(?:SSL|X509|PEM|ASN1)[^\]]*\] | ?\(_ssl\.c:\d+\)")
_ANGLES = re.compile(r"<[^<>]*>")
_HEX = re.compile(r"(?: at)? \b0x[0-9a-fA-F]{5,}\b")
_CLASS_PREFIX = re.compile(r"^(?:(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Closed|Fenced|Available)\w*: )+")
_NAMED = re.compile(r"(?:\b[a-z_]\w*\.)*\b([A-Z]\w*(?:Error|Exception))\b(?:\(([^()]*)\))?")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def sentence(error: BaseException) -> str:
    """Return what an error says in one line, without class names, reprs, error numbers, memory addresses, escape codes.

    | error | text |
    |---|---|
    | of the system (OSError with a number) | the system's words, and the file's name |
    | of TLS (ssl.SSLError) | OpenSSL's reason in small letters |
    | a Kafka error code | the code's name in Kafka, and what the broker says of it |
    | a class of _BY_CLASS | that sentence |
    | another | its own text, cleaned; without a text the name of its class, in words |

    It raises nothing, as a library's error may fail to print itself.
    """
    text = _of_system(error) or _of_broker(error) or _of_class(error) or _clean(_text_of(error)) or _words(error)
    text = printable(text)
    return text if len(text) <= SENTENCE_CHARACTERS_MAX else f"{text[:SENTENCE_CHARACTERS_MAX]}…"


def without_numbers(text: str) -> str:
    """Return what a library says, without the `[Errno 111]` that Python puts before the system's words."""
    return re.sub(r"\[Errno -?\d+\] ", "", text)


def reason(error: OSError) -> str:
    """Return why the system refused, within a sentence: `no space left on device`, without number and file name.

    Omits the text that libraries add. Numbers below 0 are those of name look-ups, which have their own texts.
    """
    if said := _of_tls(error):
        return said
    number = error.errno if isinstance(error.errno, int) else 0
    text = os.strerror(number) if number > 0 else _clean(str(error.strerror or "")) or _without_system(error)
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _of_system(error: BaseException) -> str:
    if not isinstance(error, OSError):
        return ""
    if said := _of_tls(error):
        return said
    if not isinstance(error.errno, int) or not (error.errno > 0 or error.strerror):
        return ""
    name = error.filename if isinstance(error.filename, (str, os.PathLike)) else None
    return reason(error) if name is None else f"{os.fspath(name)!s}: {reason(error)}"


def _of_tls(error: OSError) -> str:
    """Return the sentence for an ssl.SSLError: its numbers are OpenSSL's, not the system's; some have no reason."""
    if all(kind.__name__ != "SSLError" for kind in type(error).__mro__):
        return ""
    why = getattr(error, "reason", None)
    text = why.lower().replace("_", " ") if isinstance(why, str) else _clean(str(error.strerror or ""))
    return f"TLS fails: {text}" if text else "TLS fails"


def _without_system(error: OSError) -> str:
    return _of_class(error) or _clean(_text_of(error)) or _words(error)


def _of_broker(error: BaseException) -> str:
    """Return the sentence for an error code of the Kafka protocol, which aiokafka raises by a class of its own."""
    name, number = getattr(error, "message", None), getattr(error, "errno", None)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Z][A-Z0-9_]+", name) or not isinstance(number, int):
        return ""
    said = _clean(", ".join(str(argument) for argument in error.args if isinstance(argument, (str, int))))
    said = said or _clean(str(getattr(error, "description", "") or "")).rstrip(".")
    return f"the broker answers {name} ({said})" if said else f"the broker answers {name}"


def _of_class(error: BaseException) -> str:
    for kind in type(error).__mro__:
        known = _BY_CLASS.get(kind.__name__)
        if known is not None and kind is KeyError:
            return ": ".join(filter(None, (known, _clean(_text_of(error)))))
        if known is not None:
            says_more = kind.__module__ in _BUILT_IN or kind.__name__ in _OWN_TEXT_FIRST
            return (_clean(_text_of(error)) if says_more else "") or known
    return ""


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except (AttributeError, TypeError, ValueError, LookupError):  # a library's __str__ may need what nothing has set
        return ""
    name = type(error).__name__  # which aiokafka puts before its texts
    return "" if text in (name, "None") else text.removeprefix(f"{name}:")


def _clean(text: str) -> str:
    text = " ".join(text.split())
    text = _CLASS_PREFIX.sub("", _CODE.sub("", text.removeprefix("Multiple exceptions: ")))
    text = _HEX.sub("", _ANGLES.sub("", _ADDRESS.sub(r"\1:\2", text)))
    text = _NAMED.sub(lambda named: (named[2] or "").strip("'\", ") or _of_name(named[1]), text)
    return text.strip(" ,:;") if any(mark.isalnum() for mark in text) else ""


def _words(error: BaseException) -> str:
    return _of_name(type(error).__name__)


def _of_name(name: str) -> str:
    """Return what the name of an error's class says: `BrokenBarrierError` is `an internal error (broken barrier)`."""
    if name in _BY_CLASS:
        return _BY_CLASS[name]
    words = _CAMEL.sub(" ", name.strip("_")).lower().removesuffix("error").removesuffix("exception").strip()
    return f"an internal error ({words})" if words else "an internal error"
