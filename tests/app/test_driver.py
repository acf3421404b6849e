"""When the control plane is woken."""

import asyncio
import time

from muster.app.driver import SOON_S, Driver
from muster.control.plane import ControlPlane
from muster.core.clock import SteadyClock


class Plane(ControlPlane):
    """A plane that notes when it is woken, and has nothing to do."""

    def __init__(self) -> None:
        self.changes = 0
        self.woken_s: list[float] = []

    def step(self) -> float | None:
        self.woken_s.append(time.monotonic())
        return None


async def test_what_can_wait_shares_a_wake_with_what_comes_soon_after_it() -> None:
    driver, plane = Driver(SteadyClock()), Plane()
    running = asyncio.create_task(driver.run(plane))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(plane.woken_s) == 1, "it begins with a wake"
    driver.hint_soon()
    driver.hint()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(plane.woken_s) == 2, "a hint is heard at once"
    await asyncio.sleep(4 * SOON_S)
    assert len(plane.woken_s) == 2, "and took what could wait"
    began_s = time.monotonic()
    driver.hint_soon()
    driver.hint_soon()
    await asyncio.sleep(4 * SOON_S)
    assert len(plane.woken_s) == 3
    assert plane.woken_s[2] - began_s >= SOON_S * 0.9
    driver.stop()
    await running
