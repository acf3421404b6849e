"""The modules of a cluster's control plane, in the order in which they build on each other."""

from collections.abc import Sequence
from itertools import chain

from muster.control.agent.desk import AgentDesk
from muster.control.agent.leases import LeaseBook
from muster.control.agent.module import AgentModule
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import Module
from muster.control.group.module import GroupModule
from muster.control.identity.module import IdentityModule
from muster.control.job.module import JobModule
from muster.control.notice.module import NoticeModule
from muster.control.session.module import SessionModule
from muster.store.entities import ENTITIES
from muster.store.entity import Entities

WITH_ENTITIES = (NoticeModule,)
"""Modules whose entities no other module works on."""


def cluster_entities() -> Entities:
    """What the store of a cluster has to know."""
    of_modules = chain.from_iterable(module.entities for module in WITH_ENTITIES)
    return Entities([*ENTITIES.values(), *of_modules])


def cluster_modules(
    desk: AgentDesk, leases: LeaseBook, surroundings: Surroundings
) -> Sequence[Module]:
    return (
        SessionModule(),
        JobModule(),
        AgentModule(desk, leases),
        GroupModule(),
        IdentityModule(),
        *(module(surroundings) for module in WITH_ENTITIES),
    )
