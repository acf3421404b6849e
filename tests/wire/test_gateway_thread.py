"""Calls between the thread of control and that of the agents' gateway."""

import asyncio

import pytest

from muster.wire.gateway_thread import _Crossing


def fail() -> None:
    raise RuntimeError("a defect")


async def test_call_that_fails_leaves_no_other_waiting(caplog: pytest.LogCaptureFixture) -> None:
    crossing, done = _Crossing(asyncio.get_running_loop()), asyncio.Event()
    crossing.call(fail)
    crossing.call(done.set)
    await asyncio.wait_for(done.wait(), 5.0)
    assert len(crossing) == 0
    assert "a defect" in caplog.text
