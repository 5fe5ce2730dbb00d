"""Prints what a wheel pins for a board of another Python and machine than this one, for bundle.sh.

pip reads markers for the Python that it runs on, so a line whose marker does not hold on the board is left out here,
and the others lose it. Needs `packaging`, which comes with ansible-core.

usage: pins.py WHEEL PYTHON MACHINE NAME,...      as in 3.11 aarch64 broker,gateway
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterator, Sequence

from packaging.requirements import Requirement

HASHES = re.compile(r"(?:\s+--hash=sha256:[0-9a-f]{64})+\s*$")


def pins(text: str, python: str, machine: str) -> Iterator[str]:
    """Yield the lines of a requirements file that hold on a board, without their markers."""
    environment = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
    for line in text.replace("\\\n", " ").splitlines():
        hashes = HASHES.search(line)
        if hashes:
            requirement = Requirement(line[: hashes.start()])
            if requirement.marker is None or requirement.marker.evaluate(environment):
                yield f"{requirement.name}{requirement.specifier} {' '.join(hashes[0].split())}"


def main(arguments: Sequence[str]) -> int:
    """Print the lines, each package once; the exit status: 0 done, 1 the wheel has no such pins."""
    wheel, python, machine, names = arguments
    found: dict[str, None] = {}
    with zipfile.ZipFile(wheel) as file:
        for name in names.split(","):
            try:
                text = file.read(f"drupelet/pins/{name}.txt").decode()
            except KeyError:
                print(
                    f"{wheel} has no pins for {name}: run `make pins` in its checkout and build it again.",
                    file=sys.stderr,
                )
                return 1
            found |= dict.fromkeys(pins(text, python, machine))
    print(*sorted(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
