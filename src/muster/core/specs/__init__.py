"""The specs that people write: jobs, sessions, scaling groups, quotas and pools, as YAML, JSON or
Python."""

from muster.core.specs.amounts import ResourcesSpec
from muster.core.specs.deployment import DeploymentSpec
from muster.core.specs.documents import load_documents, load_keys
from muster.core.specs.group import ScalingGroup
from muster.core.specs.health import HealthSpec
from muster.core.specs.job import JobSpec
from muster.core.specs.load import load_spec, parse_spec, spec_of
from muster.core.specs.placement import (
    ClusterMode,
    Constraint,
    Dependency,
    DependencyCondition,
    Grouping,
    Operator,
    PlacementSpec,
)
from muster.core.specs.pool import MachineShape, PoolSpec
from muster.core.specs.quota import Level, QuotaLimits, QuotaSpec
from muster.core.specs.recovery import RecoverySpec
from muster.core.specs.session import MAX_GANG, KernelSpec, SessionSpec, SessionType
from muster.core.specs.work import WorkSpec
from muster.core.task_ranges import MAX_TASKS

__all__ = [
    "MAX_GANG",
    "MAX_TASKS",
    "ClusterMode",
    "Constraint",
    "Dependency",
    "DependencyCondition",
    "DeploymentSpec",
    "Grouping",
    "HealthSpec",
    "JobSpec",
    "KernelSpec",
    "Level",
    "MachineShape",
    "Operator",
    "PlacementSpec",
    "PoolSpec",
    "QuotaLimits",
    "QuotaSpec",
    "RecoverySpec",
    "ResourcesSpec",
    "ScalingGroup",
    "SessionSpec",
    "SessionType",
    "WorkSpec",
    "load_documents",
    "load_keys",
    "load_spec",
    "parse_spec",
    "spec_of",
]
