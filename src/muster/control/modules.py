"""The modules of a cluster's control plane, in the order in which they build on each other."""

from collections.abc import Sequence
from graphlib import TopologicalSorter
from itertools import chain

from muster import control
from muster.control.agent.desk import AgentDesk
from muster.control.agent.leases import LeaseBook
from muster.control.agent.module import AgentModule
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import EntityModule, Module
from muster.control.group.module import GroupModule
from muster.control.identity.module import IdentityModule
from muster.control.job.module import JobModule
from muster.control.session.module import SessionModule
from muster.core.packages import classes_of, module_of_each_folder
from muster.store.audit import AUDITS
from muster.store.audit.finding import Audit
from muster.store.entities import ENTITIES
from muster.store.entity import Entities


def _entity_modules() -> Sequence[type[EntityModule]]:
    """The entity modules in the folders of ``control``, each behind those that it goes ``after``.

    Raises:
        CycleError: some of them are to go after each other.
    """
    in_folders = module_of_each_folder(control, "module").items()
    found = {
        folder: each for folder, module in in_folders for each in classes_of([module], EntityModule)
    }
    order = TopologicalSorter({folder: each.after for folder, each in found.items()})
    return [found[folder] for folder in order.static_order()]


ENTITY_MODULES = _entity_modules()
"""Modules that declare their entities themselves."""


def cluster_entities(of_modules: Sequence[type[EntityModule]] = ENTITY_MODULES) -> Entities:
    """The entities that the store of a cluster holds."""
    declared = chain.from_iterable(module.entities for module in of_modules)
    return Entities([*ENTITIES.values(), *declared])


def cluster_audits(of_modules: Sequence[type[EntityModule]] = ENTITY_MODULES) -> Sequence[Audit]:
    """The audits of what the store of a cluster holds."""
    modules: Sequence[type[Module]] = (JobModule, *of_modules)
    declared = chain.from_iterable(module.audits for module in modules)
    return (*AUDITS, *declared)


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
