"""The spec of a service's session: what is stored with it, and no person can write."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from muster.core.health.service import Service
from muster.core.resources import GPU_WHOLE
from muster.core.specs.amounts import STORED, ResourcesSpec
from muster.core.specs.session import KernelSpec, SessionSpec

GRACE_S = 10.0
_TOO_OLD = (
    "/bin/sh",
    "-c",
    "echo 'this agent knows no services: it is older than its controller' >&2; exit 69",
)
"""The command of the kernel. An agent that knows services has a command of its own for each."""


class ServiceSpec(SessionSpec):
    """A session of a service. It is of no kind that a person can write: ``SessionSpec``, which is
    what requests are read as, refuses ``service`` as a key that it does not know."""

    service: Service


_ANY: TypeAdapter[SessionSpec] = TypeAdapter(
    Annotated[SessionSpec | ServiceSpec, Field(union_mode="left_to_right")]
)


def service_spec(service: Service, group: str, gpus: int) -> ServiceSpec:
    """The spec of the session that carries out a service.

    Args:
        gpus: how many GPUs it takes, all of each.
    """
    asked = ResourcesSpec(cpu=0, gpu=gpus)
    assert asked.gpu == gpus * GPU_WHOLE
    kernel = KernelSpec(command=list(_TOO_OLD), resources=asked, grace=GRACE_S)
    return ServiceSpec(group=group, kernels=[kernel], timeout=service.timeout_s, service=service)


def stored_spec(text: str) -> SessionSpec:
    """The spec of a session, as it was stored."""
    return _ANY.validate_json(text, context=STORED)
