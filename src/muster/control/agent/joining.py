"""Joining: how a machine becomes an agent, and the ownership of names.

An agent chooses its credential itself and stores it before it asks to join. So a request whose
answer was lost can be repeated: control finds the agent that it made, and charges the token no
second use. A name belongs to the agent that has it. Another machine can get the name only with a
token for this name that an administrator made after the former agent went away, and only once none
of that agent's kernels can still run. The former agent is removed then: its credential is refused
as a former agent's, so that it ends its kernels.
"""

from muster.control.agent.lifecycle import AgentLifecycle
from muster.control.engine.work import Work
from muster.control.identity.tokens import charge
from muster.core.errors import MusterError
from muster.core.ids import AgentId
from muster.core.reasons.of_agents import AgentJoined, AgentReplaced
from muster.core.resources import Resources
from muster.core.states import AgentStatus
from muster.store.live import Live
from muster.store.records import Agent
from muster.store.tokens import JoinToken, token_hash
from muster.wire.calls import (
    JoinRequest,
)

PHASE = "Join"
LEAST_CREDENTIAL_CHARS = 32
"""A credential that an agent chooses is no shorter: 32 characters of base 64 are 192 bits."""
MOST_CREDENTIAL_CHARS = 256


class JoinRefused(MusterError):
    """An agent may not join; the text says why, and names no ids."""


class NameNotFree(MusterError):
    """A name will be free for the agent later; the text says when."""


def check(live: Live, request: JoinRequest, now: float) -> None:
    """Look at a request before it costs a wake.

    Raises:
        JoinRefused: the request's token is not good for it.
    """
    if _joined_before(live, request) is None:
        _token(live, request, now)


def join(work: Work, agents: AgentLifecycle, request: JoinRequest) -> Agent:
    """Make an agent for the request, and charge the token.

    Raises:
        NotFound: there is no such group.
        JoinRefused: the token is not good for it, or the name is another's.
        NameNotFree: what the name's former agent held may run still.
    """
    if (agent := _joined_before(work.live, request)) is not None:
        return agent
    token = _token(work.live, request, work.now)
    work.live.group(request.group)
    hashed = token_hash(request.credential)
    length = len(request.credential)
    if not LEAST_CREDENTIAL_CHARS <= length <= MOST_CREDENTIAL_CHARS:
        raise JoinRefused("the agent's credential is too short or too long to be one")
    if hashed in work.live.credentials:
        raise JoinRefused("the agent's credential is that of another: remove its directory")
    _free_name(work, agents, token, request.name)
    charge(work, token)
    agent = Agent(
        id=work.ids.agent(),
        name=request.name,
        group=request.group,
        status=AgentStatus.ALIVE,
        status_changed_at=work.now,
        credential_hash=hashed,
        boot_id="",
        version="",
        host="",
        capacity=Resources(),
        devices=(),
        attributes=dict(token.fixed),
        fixed=dict(token.fixed),
        joined_at=work.now,
        seen_at=work.now,
    )
    work.live.credentials[hashed] = agent.id
    agents.add(work, agent, PHASE, AgentJoined(group=request.group))
    return agent


def reissue(work: Work, name: str, credential: str) -> AgentId | None:
    """Give the agent of this name another credential; it stays the same agent. None if no agent has
    the name.

    To be used for the controller's own agents alone: that the controller can write an agent's
    directory proves the administrator's consent.

    Raises:
        JoinRefused: the agent is connected, so it has a good credential.
    """
    agent = agent_named(work.live, name)
    if agent is None:
        return None
    if agent.connected:
        raise JoinRefused(f"agent {name!r} is connected from elsewhere")
    work.live.credentials.pop(agent.credential_hash, None)
    agent.credential_hash = token_hash(credential)
    work.live.credentials[agent.credential_hash] = agent.id
    work.unit.touch(agent)
    return agent.id


def _token(live: Live, request: JoinRequest, now: float) -> JoinToken:
    """
    Raises:
        JoinRefused: the token is not good for this agent. Only the holder of a good token is told
            more.
    """
    token = live.accounts.join_tokens.of_secret(request.token)
    if token is None or not token.is_good(now):
        raise JoinRefused("the join token is wrong, used up, expired or revoked")
    if token.agent not in (None, request.name):
        raise JoinRefused(f"this join token is for an agent named {token.agent!r}")
    if token.names and request.name not in token.names:
        raise JoinRefused("this join token is for the machines of a slice, which have other names")
    if token.group not in (None, request.group):
        raise JoinRefused(f"this join token is for group {token.group}: give --group {token.group}")
    return token


def _joined_before(live: Live, request: JoinRequest) -> Agent | None:
    """The agent that an earlier, equal request made, whose answer was lost."""
    agent = agent_named(live, request.name)
    if agent is None or agent.credential_hash != token_hash(request.credential):
        return None
    return agent


def agent_named(live: Live, name: str) -> Agent | None:
    """The agent that has the name now."""
    agent = live.agent_names.get(name)
    return None if agent is None or agent.status is AgentStatus.REMOVED else agent


def _free_name(work: Work, agents: AgentLifecycle, token: JoinToken, name: str) -> None:
    """Free the name, if it may be freed.

    Raises:
        JoinRefused: the name stays an agent's.
        NameNotFree: it does so for now.
    """
    named = agent_named(work.live, name)
    if named is None:
        return
    if named.connected:
        raise JoinRefused(f"agent {name!r} is connected: choose another name with --name")
    invited = token.agent == name and token.created_at >= named.seen_at
    if not invited and name not in token.names:
        raise JoinRefused(
            f"agent name {name!r} is taken: start that agent again where its directory is, choose "
            f"another name with --name, or have an administrator run `muster agents invite {name}`"
        )
    if work.live.allocations_on.get(named.id):
        raise NameNotFree(
            f"agent {name!r} may still run kernels where it was: start it again there, or wait "
            f"until its lease has ended; if that machine is gone or was rebooted, have an "
            f"administrator run `muster agents remove --lost {name}`"
        )
    agents.remove(work, named, PHASE, AgentReplaced(by=token.made_by))
