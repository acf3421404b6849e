"""Commands that take long say so."""

import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from muster.app import local
from muster.app.local_parts import LocalParts
from muster.cli import slowness
from muster.cli.program import app
from muster.cli.slowness import told_if_slow

LONG_S = 30.0
"""Longer than any test waits for what comes."""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> "Said":
    said = Said()
    monkeypatch.setattr(slowness, "say", said)
    return said


class Said:
    """The sentences that were said; ``heard`` is set by the first."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.heard = threading.Event()

    def __call__(self, sentence: str) -> None:
        self.sentences.append(sentence)
        self.heard.set()


def test_who_is_quick_says_nothing(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowness, "SLOW_S", LONG_S)
    with told_if_slow("it goes on"):
        pass
    with told_if_slow("it goes on") as is_over:
        is_over()
    assert said.sentences == []
    assert not [each for each in threading.enumerate() if isinstance(each, threading.Timer)]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("up", "starting a controller, its agents and its proxy"),
        ("down", "stopping the cluster and what runs on it, for 30s at most"),
    ],
)
def test_cluster_that_is_slow_says_what_it_is_about(
    said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, sentence: str
) -> None:
    def slow_up(options: Any, ready: Any) -> None:
        assert said.heard.wait(LONG_S)
        parts = LocalParts(missing=(), proxy=None, trouble=None)
        ready(local.UpReport("http://a", 1, ("m",), "a:1", tmp_path, tmp_path, 3.0, parts))

    def slow_down(*_: Any, **__: Any) -> local.DownReport:
        assert said.heard.wait(LONG_S)
        return local.DownReport(was_running=True, stopped_kernels=0)

    monkeypatch.setattr(slowness, "SLOW_S", 0.0)
    monkeypatch.setattr(local, "up", slow_up)
    monkeypatch.setattr(local, "down", slow_down)
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 0, result.output
    assert said.sentences == [f"{sentence} …"]
