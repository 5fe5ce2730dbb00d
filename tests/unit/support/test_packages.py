"""The packages come from this checkout: `mirror` and `hardware` are import names of other distributions too."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["drupelet", "edge_broker", "kafka_wire", "gateway", "mirror", "spark", "hardware"])
def test_package_is_imported_from_this_checkout(name):
    package = importlib.import_module(name)
    assert package.__file__ is not None
    assert Path(package.__file__).parent == ROOT / name


def test_ansible_has_no_init_file():
    """A folder `ansible/` without one does not shadow the ansible package; with one it does."""
    assert not (ROOT / "ansible" / "__init__.py").exists()
