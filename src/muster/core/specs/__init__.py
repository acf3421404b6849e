"""What people write: jobs, sessions and scaling groups, as YAML, JSON or Python."""

from muster.core.specs.amounts import ResourcesSpec
from muster.core.specs.group import ScalingGroup
from muster.core.specs.job import MAX_TASKS, JobSpec
from muster.core.specs.load import load_keys, load_spec, parse_spec, spec_of
from muster.core.specs.session import MAX_GANG, KernelSpec, SessionSpec, SessionType

__all__ = [
    "MAX_GANG",
    "MAX_TASKS",
    "JobSpec",
    "KernelSpec",
    "ResourcesSpec",
    "ScalingGroup",
    "SessionSpec",
    "SessionType",
    "load_keys",
    "load_spec",
    "parse_spec",
    "spec_of",
]
