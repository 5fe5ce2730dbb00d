"""How much ciphertext OpenSSL was given and has not given back, which it does not tell: a part of one record.

It is all that it was given, less all that it has given back and each record's overhead:

| | bytes of a record in addition to its content | source |
|---|---|---|
| TLS 1.3 | 22, or 14 by CCM_8, and padding | RFC 8446, 5.2 |
| TLS 1.2, GCM | 29 | RFC 5288 |
| TLS 1.2, else | 21 at least | RFC 7905, 6655, 5246 |

Java pads each record of TLS 1.3 with 16 zeros, so what it is there is learned from the first record, whose head says
how long it is. Other padding makes the sum too large, or once too small, and then the least is taken.

Pure. Does not contain: what is done with it (connection/socket_low_water.py).
"""

from __future__ import annotations

import ssl

RECORD_BYTES_MAX = 16_645  # of ciphertext: RFC 8446, 5.2
HEAD_BYTES = 5
LENGTH = slice(3, HEAD_BYTES)


def record_bytes(data: bytes | memoryview) -> int:
    """How long the record is, head and all, that begins here; 0: less than its head is here."""
    return HEAD_BYTES + int.from_bytes(data[LENGTH], "big") if len(data) >= HEAD_BYTES else 0


class PendingCiphertext:
    """The sum of one connection since its handshake; who reads from OpenSSL adds to `plain_bytes` and `records`."""

    __slots__ = ("_least_bytes", "_overhead_bytes", "_pads", "first_bytes", "given_bytes", "plain_bytes", "records")

    def __init__(self) -> None:
        self.given_bytes = self.plain_bytes = self.records = 0
        self.first_bytes = 0  # of the first record, as long as something is to be learned from it
        self._least_bytes = self._overhead_bytes = 0
        self._pads = False

    def begin(self, tls: ssl.SSLObject) -> None:
        """The handshake is complete; the bytes after it are given next."""
        cipher = tls.cipher()
        name = cipher[0] if cipher is not None else ""
        self._pads = tls.version() == "TLSv1.3"
        if self._pads:
            self._least_bytes = 14 if "CCM_8" in name else 22
        else:
            self._least_bytes = 29 if "GCM" in name else 21
        self._overhead_bytes = self._least_bytes

    def give(self, data: memoryview) -> None:
        """OpenSSL is given this ciphertext."""
        if not self.given_bytes:
            self.first_bytes = record_bytes(data)
        self.given_bytes += len(data)

    def at_most(self) -> int:
        """So many bytes, or less, of a record that has not come whole; to be asked when OpenSSL has no whole one."""
        if self.first_bytes and self.records:
            self._learn()
        ahead = self.given_bytes - self.plain_bytes - self.records * self._overhead_bytes
        if ahead < 0:
            self._overhead_bytes = self._least_bytes
            ahead = RECORD_BYTES_MAX
        if ahead >= RECORD_BYTES_MAX:
            ahead = RECORD_BYTES_MAX - 1
            self.given_bytes = ahead + self.plain_bytes + self.records * self._overhead_bytes
        return ahead

    def _learn(self) -> None:
        """Take the first record's overhead for every record's; of TLS 1.2 each has its own."""
        overhead_bytes, self.first_bytes = self.first_bytes - self.plain_bytes, 0
        if self.records == 1 and self._pads and overhead_bytes >= self._least_bytes:
            self._overhead_bytes = overhead_bytes
