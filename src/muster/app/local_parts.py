"""The parts that a controller starts on its own machine, as `muster up` waits for them."""

import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from muster.app.home import Home
from muster.app.proxy_config import LOG_FILE, PROXY_NAME, proxy_directory, running_proxy
from muster.core.errors import MusterError

FIRST_LOOK_S = 0.02
LONGEST_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class LocalParts:
    """
    Args:
        missing: agents that have not joined.
        proxy: the URL of the proxy; None if it does not run.
        trouble: why it does not, where it should.
    """

    missing: tuple[str, ...] = ()
    proxy: str | None = None
    trouble: str | None = None


def wait_for_parts(
    home: Home,
    names: Collection[str],
    has_proxy: bool,
    told_to_stop: threading.Event,
    within_s: float,
) -> LocalParts:
    """Wait until the agents of these names have joined, and the proxy runs or has ended; the first
    look is at once."""
    if not names and not has_proxy:
        return LocalParts()
    from muster.client import Client  # while it is imported the parts start

    known = home.client()
    deadline_s, pause_s = time.monotonic() + within_s, FIRST_LOOK_S
    missing, trouble = tuple(names), None
    directory = proxy_directory(home)
    with Client(known["url"], known["token"], ca=known.get("ca")) as cluster:
        while True:
            proxy = running_proxy(directory) if has_proxy else None
            waits = has_proxy and proxy is None
            with suppress(MusterError):  # the controller's log says more
                joined = {each.name for each in cluster.agents() if each.connected}
                missing = tuple(name for name in names if name not in joined)
                told = cluster.cluster().trouble if waits else None
                trouble = told if told and PROXY_NAME in told else None
            over = time.monotonic() > deadline_s or not (missing or (waits and not trouble))
            if over or told_to_stop.wait(pause_s):
                break
            pause_s = min(pause_s * 1.5, LONGEST_LOOK_S)
    if waits and not trouble:
        trouble = f"{PROXY_NAME} does not listen yet; see {directory / LOG_FILE}"
    return LocalParts(missing, proxy.url if proxy is not None else None, trouble)
