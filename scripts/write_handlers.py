"""Writes docs/handlers.md from the control plane: `python scripts/write_handlers.py`."""

import inspect
import random
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from muster.control.agent.desk import AgentDesk
from muster.control.agent.leases import LeaseBook
from muster.control.engine.handler import Handler, Stage
from muster.control.inbox import Inbox
from muster.control.modules import Surroundings, cluster_entities, cluster_modules
from muster.control.plane import ControlPlane
from muster.core.clock import SteadyClock
from muster.core.ids import IdFactory
from muster.store.database import open_engine
from muster.store.database.address import sqlite_url
from muster.store.store import Store

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "handlers.md"


def handlers() -> Sequence[Handler]:  # type: ignore[type-arg]
    """The handlers of a new cluster, in the order of a pass."""
    with tempfile.TemporaryDirectory() as path:
        engine = open_engine(sqlite_url(Path(path) / "muster.db"))
        clock, inbox = SteadyClock(), Inbox()
        store = Store(engine, cluster_entities())
        leases = LeaseBook(clock)
        surroundings = Surroundings(engine, inbox.put, Path(path))
        modules = cluster_modules(AgentDesk(store, clock, leases, inbox), leases, surroundings)
        plane = ControlPlane(store, clock, IdFactory(clock, random.Random(0)), inbox, modules)
        found = plane.handlers
        plane.close()
        store.close()
    return found


def page() -> str:
    parts = [
        "# Handlers",
        "",
        "In the order in which a pass of the control plane runs them, written by",
        "`scripts/write_handlers.py`; a test keeps this page equal to it.",
    ]
    for stage, of_stage in groupby(handlers(), key=lambda each: each.stage):
        parts += [
            "",
            f"## {Stage(stage).name}",
            "",
            "| handler | of | in | does |",
            "|---|---|---|---|",
        ]
        for each in of_stage:
            kind = type(each)
            file = Path(inspect.getfile(kind)).relative_to(ROOT / "src" / "muster")
            told = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
            parts.append(f"| `{each.name}` | {each.entity.__name__} | `{file}` | {told} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
