"""Invariants of the answers that users were given."""

import json
from collections import defaultdict
from typing import Any

from sqlalchemy import select

from muster.core.health.service import SERVICE_OWNER
from muster.core.owner import Role
from muster.store import schema
from proving.swarm.chance import CHANCE, DEPLOYMENT
from proving.swarm.judge import Invariant
from proving.swarm.scene import ADMIN, Request

_ADMINS_ONLY = ("/v1/groups", "/v1/quotas", "/v1/agents")
_OURS = frozenset({500, 501, 502})
"""Statuses that tell of a defect; 503 tells that nothing can be stored now."""


class AnsweredByRole(Invariant):
    """Work of others is "not found", viewers change nothing, settings are for admins."""

    says = "everybody is answered as their role allows"

    def between_steps(self) -> None:
        for request in self.scene.requests:
            status = request.answer.status
            allowed = _refusals(request, self._owner_of(request.path))
            right = status >= 503 or (status in allowed if allowed else status not in (401, 403))
            self.expect(right and status not in _OURS, f"{request}")

    def _owner_of(self, path: str) -> str | None:
        for submission in self.scene.submitted.values():
            if submission.id is not None and submission.id in path:
                return submission.user.name
        return None


def _refusals(request: Request, owner: str | None) -> tuple[int, ...]:
    """The statuses that the answer may have; none if every status is right that does not refuse for
    lack of rights."""
    if request.user.role is Role.VIEWER and request.method != "GET":
        return (403,)
    if request.user != ADMIN and request.path.startswith(_ADMINS_ONLY):
        return (403,)
    if request.user != ADMIN and owner not in (None, request.user.name):
        return (404,)
    return ()


class AcceptedOnce(Invariant):
    """However often a submission is repeated, whatever befalls the answers."""

    says = "what was accepted is there once, and what was refused is not"

    def at_rest(self) -> None:
        jobs, sessions = schema.jobs, schema.sessions
        stored: dict[str, list[str]] = defaultdict(list)
        with self.world.store.engine.connect() as connection:
            handed_in = select(jobs.c.id, jobs.c.spec).where(jobs.c.retry_of.is_(None))
            for row in connection.execute(handed_in):
                stored[_number_of(json.loads(row.spec))].append(row.id)
            by_people = sessions.c.domain != SERVICE_OWNER.domain
            alone = select(sessions.c.id, sessions.c.spec).where(sessions.c.job_id.is_(None))
            for row in connection.execute(alone.where(by_people)):
                kernel = json.loads(row.spec)["kernels"][0]
                if DEPLOYMENT not in kernel["env"]:  # nobody handed those in
                    stored[_number_of(kernel)].append(row.id)
        for number, submission in self.scene.submitted.items():
            ids = stored[str(number)]
            if submission.id is not None:
                right = ids == [submission.id]
            else:
                right = len(ids) <= (1 if submission.refusal is None else 0)
            self.expect(
                right,
                f"{submission.number} was answered {submission.id or submission.refusal}: {ids}",
            )


def _number_of(spec: dict[str, Any]) -> str:
    return str(spec["env"][CHANCE])
