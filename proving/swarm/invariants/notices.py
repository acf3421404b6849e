"""Notices: whoever asked is told of the end of work."""

import json
from collections import defaultdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from muster.control.notice.entity import Tone, name_of, notices
from muster.control.notice.states import NoticeStatus
from muster.store import schema
from proving.swarm.judge import Invariant


class EndsAreTold(Invariant):
    """Each channel of ended work has one notice; a notice that counts as sent has got to its
    channel, once at least."""

    says = "each channel is told once of an end, or somebody knows that it was not"

    def at_rest(self) -> None:
        told: dict[str, list[Any]] = defaultdict(list)
        with self.world.store.engine.connect() as connection:
            for row in connection.execute(select(notices)):
                told[row.subject].append(row)
            wanted = _wanted(connection)
        for subject in wanted.keys() | told.keys():
            # That it has to leave a machine is told beside its end, and is neither good nor bad.
            ends = sum(row.tone != Tone.INFO for row in told[subject])
            self.expect(
                ends == wanted.get(subject, 0),
                f"{subject}: {wanted.get(subject, 0)} wanted, {ends} told",
            )
            for row in told[subject]:
                times = self.world.told[name_of(row.id, row.subject)]
                self.expect(
                    times > 0 or row.status != NoticeStatus.SENT,
                    f"notice {row.id} counts as sent, and no channel got it",
                )


def _wanted(connection: Connection) -> dict[str, int]:
    """How many channels each job, and each session of its own, names."""
    jobs, sessions = schema.jobs, schema.sessions
    alone: ColumnElement[bool] = sessions.c.job_id.is_(None)
    rows = [
        *connection.execute(select(jobs.c.id, jobs.c.spec)),
        *connection.execute(select(sessions.c.id, sessions.c.spec).where(alone)),
    ]
    channels = {row.id: len(json.loads(row.spec).get("notify", ())) for row in rows}
    return {id_: count for id_, count in channels.items() if count}
