"""Journal files that a real systemd wrote, in each of its formats, against journalctl's reading of them.

| variable of systemd | values | since |
|---|---|---|
| SYSTEMD_JOURNAL_COMPACT, SYSTEMD_JOURNAL_KEYED_HASH | 0, 1 | 252, 246 |
| SYSTEMD_JOURNAL_COMPRESS | XZ, LZ4, ZSTD | 254; before, only what it was built for |

The files of xz and lz4 in tests/golden/gateway_journal are of version 254, so each codec is read with any package.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import zstandard

from gateway.systemd_journal.file_format import COMPACT, read_header
from tests.support.journal_exports import Fields, exported, long_entries, parsed
from tests.support.journal_reading import CODEC_FLAGS, differences
from tests.support.waiting import CALL_S

REMOTE = "/lib/systemd/systemd-journal-remote"
GOLDEN = sorted((Path(__file__).parents[1] / "golden/gateway_journal").glob("compressed-*.journal.zst"))
KEYED_HASH = 1 << 2
CODEC_SINCE = SHARED_ID_SINCE = 254


def version() -> int:
    said = subprocess.run([REMOTE, "--version"], check=True, capture_output=True, text=True, timeout=CALL_S).stdout
    return int(said.split()[1])


def of_journalctl(path: Path) -> list[Fields]:
    command = ["journalctl", f"--file={path}", "--output=export", "--all", "--no-pager"]
    return list(parsed(subprocess.run(command, check=True, capture_output=True, timeout=CALL_S).stdout))


@pytest.mark.parametrize("codec", CODEC_FLAGS)
@pytest.mark.parametrize("compact", [0, 1])
@pytest.mark.parametrize("keyed", [0, 1])
def test_a_file_of_systemd_is_read_as_journalctl_reads_it(tmp_path: Path, codec: str, compact: int, keyed: int) -> None:
    path = tmp_path / "remote.journal"
    names = {"COMPRESS": codec, "COMPACT": str(compact), "KEYED_HASH": str(keyed)}
    environment = os.environ | {f"SYSTEMD_JOURNAL_{name}": value for name, value in names.items()}
    command = [REMOTE, "--output", path, "-"]
    subprocess.run(
        command, input=exported(long_entries()), env=environment, check=True, capture_output=True, timeout=CALL_S
    )
    header = read_header(path)[0]
    flags = header.incompatible_flags
    assert (bool(flags & COMPACT), bool(flags & KEYED_HASH)) == (bool(compact), bool(keyed))
    if version() >= CODEC_SINCE:
        assert flags & sum(CODEC_FLAGS.values()) == CODEC_FLAGS[codec]
    assert header.may_share_id == (version() >= SHARED_ID_SINCE)
    assert len(of_journalctl(path)) == len(long_entries())
    assert differences(path, of_journalctl(path)) == []


@pytest.mark.parametrize("packed", GOLDEN, ids=[path.name for path in GOLDEN])
def test_a_file_of_another_version_is_read_as_journalctl_reads_it(tmp_path: Path, packed: Path) -> None:
    path = tmp_path / packed.stem
    with zstandard.open(packed, "rb") as content:
        path.write_bytes(content.read())
    assert len(of_journalctl(path)) == len(long_entries())
    assert differences(path, of_journalctl(path)) == []
