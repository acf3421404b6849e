"""New credentials for a controller's own agents whose old ones cannot be used any more."""

import logging
import secrets

from muster.agent.config import AgentConfig
from muster.agent.identity import Identity, UnusableDirectory, load_identity, save_identity
from muster.control.agent.joining import agent_named, reissue
from muster.control.plane import ControlPlane
from muster.core.errors import MusterError
from muster.core.ids import AgentId
from muster.store.live import Live
from muster.store.tokens import token_hash

log = logging.getLogger(__name__)


async def mend_credential(plane: ControlPlane, config: AgentConfig) -> None:
    """See to it that the agent of this directory, which is the controller's own, is let in: one
    whose credential is missing or damaged, or not the controller's, is given another. It stays the
    same agent, so what it runs goes on. One that never joined joins by itself."""
    try:
        if _is_good(plane.live, config.name, load_identity(config.directory)):
            return
        why = "is not known"
    except UnusableDirectory as error:
        why = f"cannot be used ({error})"
    credential = secrets.token_urlsafe(32)
    try:
        agent = await plane.request(lambda work, _: reissue(work, config.name, credential))
        # An agent whose name is unknown joins.
        save_identity(config.directory, Identity(agent or AgentId(""), credential))
    except (MusterError, TimeoutError) as error:
        log.error(
            "the credential of agent %s %s, and is not given anew: %s", config.name, why, error
        )
    else:
        log.warning("agent %s: its credential %s; it was given another", config.name, why)


def _is_good(live: Live, name: str, kept: Identity | None) -> bool:
    """Whether the agent can go on with what it has: a credential that is its own; or, where nobody
    has its name, none yet."""
    owner = None if kept is None else live.credentials.get(token_hash(kept.credential))
    if kept is not None and kept.agent:
        return owner == kept.agent
    named = agent_named(live, name)
    return named is None or named.id == owner
