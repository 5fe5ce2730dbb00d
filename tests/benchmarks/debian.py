"""Another Debian's Python, OpenSSL and Java under a broker: a root as ansible/molecule/lab/lab.sh makes it.

Lives here: how a command runs in it, how the wheel gets there. Must never come in: what is measured.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

IN_ROOT = Path(__file__).with_name("in_root.sh")
JAVA = "/usr/bin/java"
GLIBC_MINOR = 36  # of Debian 12, the oldest


class DebianRoot(NamedTuple):
    """A root, and the folders of this machine that commands find in it, where they are here."""

    path: Path
    folders: tuple[Path, ...]

    def command(self, *words: str | Path) -> list[str]:
        """What runs a command in it, as this process's child, whose id it keeps."""
        return [str(word) for word in (IN_ROOT, self.path, *self.folders, "--", *words)]

    def run(self, *words: str | Path) -> str:
        """Run a command in it; what it printed. CalledProcessError: it failed."""
        return subprocess.run(self.command(*words), check=True, stdout=subprocess.PIPE, text=True).stdout

    def install(self, wheel: Path, folder: Path, more: Sequence[str] = ()) -> Path:
        """Install a wheel with its dependencies and `more`, which pip fetches here; the Python that has them there."""
        version = self.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        tags = ["manylinux2014", *(f"manylinux_2_{minor}" for minor in range(5, GLIBC_MINOR + 1))]
        fetch = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", f"--python-version={version}"]
        fetch += [f"--platform={tag}_{platform.machine()}" for tag in tags]
        subprocess.run([*fetch, "-d", str(folder / "wheels"), str(wheel), *more], check=True)
        python = folder / "venv" / "bin" / "python"
        self.run("python3", "-m", "venv", folder / "venv")
        self.run(python, "-m", "pip", "install", "-q", "--no-index", "-f", folder / "wheels", wheel, *more)
        return python

    def says(self, python: Path) -> str:
        """Versions of its Python, OpenSSL and Java, for the report."""
        told = self.run(
            python, "-c", "import platform, ssl; print('Python', platform.python_version(), ssl.OPENSSL_VERSION)"
        )
        java = subprocess.run(self.command(JAVA, "-version"), check=True, capture_output=True, text=True).stderr
        return f"{told.strip()}; {java.splitlines()[0]}"
