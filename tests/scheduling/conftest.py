"""Fixtures of the tests of plug-ins."""

import pytest

from muster.scheduling.policy import guard


@pytest.fixture
def short_leash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand lines of a plug-in are too many."""
    monkeypatch.setattr(guard, "MAX_LINES", 2_000)
