"""The modules of a cluster's control plane, in the order in which they build on each other."""

from collections.abc import Sequence
from itertools import chain

from muster.control.agent.desk import AgentDesk
from muster.control.agent.leases import LeaseBook
from muster.control.agent.module import AgentModule
from muster.control.deployment.module import DeploymentModule
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import EntityModule, Module
from muster.control.group.module import GroupModule
from muster.control.health.module import HealthModule
from muster.control.identity.module import IdentityModule
from muster.control.job.audit import AUDITS as JOB_AUDITS
from muster.control.job.module import JobModule
from muster.control.notice.module import NoticeModule
from muster.control.pool.module import PoolModule
from muster.control.recovery.module import RecoveryModule
from muster.control.session.module import SessionModule
from muster.store.audit import AUDITS
from muster.store.audit.finding import Audit
from muster.store.entities import ENTITIES
from muster.store.entity import Entities

ENTITY_MODULES: Sequence[type[EntityModule]] = (
    NoticeModule,
    PoolModule,
    HealthModule,
    RecoveryModule,
    DeploymentModule,
)
"""Modules that declare their entities themselves."""


def cluster_entities(of_modules: Sequence[type[EntityModule]] = ENTITY_MODULES) -> Entities:
    """The entities that the store of a cluster holds."""
    declared = chain.from_iterable(module.entities for module in of_modules)
    return Entities([*ENTITIES.values(), *declared])


def cluster_audits(of_modules: Sequence[type[EntityModule]] = ENTITY_MODULES) -> Sequence[Audit]:
    """The audits of what the store of a cluster holds."""
    declared = chain.from_iterable(module.audits for module in of_modules)
    return (*AUDITS, *JOB_AUDITS, *declared)


def cluster_modules(
    desk: AgentDesk,
    leases: LeaseBook,
    surroundings: Surroundings,
    entity_modules: Sequence[type[EntityModule]] = ENTITY_MODULES,
) -> Sequence[Module]:
    return (
        SessionModule(desk.unheard, surroundings.uids),
        JobModule(),
        AgentModule(desk, leases),
        GroupModule(),
        IdentityModule(),
        *(module(surroundings) for module in entity_modules),
    )
