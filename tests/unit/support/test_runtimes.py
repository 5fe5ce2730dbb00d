"""Runtimes: the wrong Java is rejected, what is missing is named, jars are fetched whole or not at all."""

import hashlib

import pytest

from spark.jvm import java
from spark.jvm.jars import MAVEN_URL_VARIABLE
from tests.support import runtimes


def _fake_java(home, version):
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def only_these_javas(monkeypatch):
    """Let `java()` see the given candidates and nothing of this machine."""

    def give(*paths):
        monkeypatch.setattr(java, "java_programs", lambda: iter(paths))
        runtimes.java.cache_clear()

    yield give
    runtimes.java.cache_clear()


def test_java_23_and_newer_is_passed_over_for_21(tmp_path, only_these_javas):
    new, good = _fake_java(tmp_path / "25", "25.0.1"), _fake_java(tmp_path / "21", "21.0.7")
    only_these_javas(new, good)
    assert runtimes.java() == good


def test_a_java_that_is_too_new_is_named_with_the_reason(tmp_path, only_these_javas):
    only_these_javas(_fake_java(tmp_path / "25", "25.0.1"))
    with pytest.raises(runtimes.MissingRuntimeError, match=r"25/bin/java is 25\); .* breaks on 23.*apt install"):
        runtimes.java()


def test_java_8_has_a_version_of_its_own_style(tmp_path, only_these_javas):
    only_these_javas(_fake_java(tmp_path / "8", "1.8.0_402"))
    with pytest.raises(runtimes.MissingRuntimeError, match="8/bin/java is 8"):
        runtimes.java()


def test_a_missing_program_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(runtimes.shutil, "which", lambda name, path=None: None)
    with pytest.raises(runtimes.MissingRuntimeError, match="kcat is not installed: `apt install kcat`"):
        runtimes.kcat()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A Maven repository with one jar, in a folder, and an empty cache."""
    served = tmp_path / "served"
    (served / "org/x/x/1").mkdir(parents=True)
    (served / "org/x/x/1/x-1.jar").write_bytes(b"the jar")
    monkeypatch.setenv(MAVEN_URL_VARIABLE, served.as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runtimes.jars.cache_clear()
    yield served
    runtimes.jars.cache_clear()


def _lock(tmp_path, content):
    path = tmp_path / "lock"
    path.write_text(f"# a lock\n{hashlib.sha256(content).hexdigest()}  org.x:x:1\n")
    return path


def test_jars_are_fetched_once_and_kept(repository, tmp_path):
    lock = _lock(tmp_path, b"the jar")
    folder = runtimes.jars(lock, "x")
    assert folder == tmp_path / "cache/drupelet/jars/x"
    (repository / "org/x/x/1/x-1.jar").unlink()
    runtimes.jars.cache_clear()
    assert (runtimes.jars(lock, "x") / "x-1.jar").read_bytes() == b"the jar"


def test_a_jar_with_another_checksum_is_not_kept(repository, tmp_path):
    with pytest.raises(runtimes.MissingRuntimeError, match="do not trust the repository"):
        runtimes.jars(_lock(tmp_path, b"another jar"), "x")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_an_unreachable_repository_names_the_variable(repository, tmp_path, monkeypatch):
    monkeypatch.setenv(MAVEN_URL_VARIABLE, "http://127.0.0.1:9")
    remedy = rf"Connection refused.*run `tests/support/setup\.sh jars`.*{MAVEN_URL_VARIABLE}"
    with pytest.raises(runtimes.MissingRuntimeError, match=remedy):
        runtimes.jars(_lock(tmp_path, b"the jar"), "x")
