"""A deployment as people write it: a service of several replicas, each a session with an address
(design: Deployments and routes)."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from muster.core.errors import Problem
from muster.core.serving.traffic import is_of_machine
from muster.core.specs.amounts import STORED, Duration, Name, OwnerName, Whole
from muster.core.specs.notify import Channels
from muster.core.specs.placement import ANYWHERE, Dependencies, PlacementSpec
from muster.core.specs.serving import (
    MAX_REPLICAS,
    Access,
    AccessSpec,
    Affinity,
    Host,
    ProbeSpec,
    ReplicaCount,
    ScaleSpec,
    ShareOf,
    UpdateSpec,
)
from muster.core.specs.session import Port, Process, like_an_id
from muster.core.specs.work import Priority

REPLACING = (
    "command",
    "env",
    "environment",
    "workdir",
    "files",
    "resources",
    "ports",
    "uses",
    "grace",
    "port",
    "group",
    "placement",
)
"""Keys of which another value makes a new revision, whose replicas take the place of the former."""


class DeploymentSpec(Process):
    """A service: ``replicas`` equal processes that are kept up, found healthy, and reached by one
    name.

    Args:
        name: the deployment's name, by which requests reach it; no other deployment of the cluster
            has it.
        project: the owner's project for which it counts; the owner's first when left out.
        group: the scaling group whose agents it may use.
        replicas: how many of it there are; leave out with ``scale``.
        port: the port on which the program listens by itself: a replica is started only on a
            machine where nobody else has it, so each needs a machine, and an update `surge: 0`
            where all have one. Without it one is reserved on the agent for each replica and told in
            PORT, so that several may run on one machine.
        probe: how a replica's health is found out. To change it replaces no replica.
        update: how a new revision is rolled out.
        scale: a number of replicas that follows load.
        access: `owner`, `public`, or users and projects that may send requests.
        host: the name of a host by which requests reach it too; one that an administrator gave to
            the project, or its own name below the domain of the cluster's deployments. No other
            deployment has it, and it is no address and not ``localhost``.
        affinity: the name of a header, or of a cookie as {cookie: NAME}: requests with the same
            value reach the same replica, as long as it is up.
        drain: longest time that requests under way may take before a replica is stopped.
        disruption: replicas that drains, preemption, healing and scaling may have missing at a
            time, as a number or a share; one at least, unless it is 0 itself.
        priority: higher goes first.
        placement: the agents for its replicas, which are spread over them.
        after: other work, and the states that it must reach before the first replica is started.
        notify: channels that are told when an update is done or was given up, when no replica of a
            new deployment became healthy, and when none has served for a while, and one does again;
            a list of URLs.
    """

    kind: Literal["deployment"] = "deployment"
    name: Name
    project: OwnerName | None = None
    group: Name = "default"
    replicas: Annotated[Whole, Field(ge=0, le=MAX_REPLICAS)] = 1
    port: Port | None = None
    probe: ProbeSpec = Field(default_factory=ProbeSpec)
    update: UpdateSpec = Field(default_factory=UpdateSpec)
    scale: ScaleSpec | None = None
    access: Access = Field(default_factory=AccessSpec)
    host: Host | None = None
    affinity: Affinity | None = None
    drain: Annotated[Duration, Field(le=3600)] = 30.0
    disruption: ShareOf = ReplicaCount(percent=25)
    priority: Priority = 50
    placement: PlacementSpec = Field(default_factory=lambda: ANYWHERE)
    after: Dependencies = ()
    notify: Channels = ()

    @model_validator(mode="after")
    def _one_number(self) -> "DeploymentSpec":
        if self.scale is not None and "replicas" in self.model_fields_set:
            low, high = self.scale.min, self.scale.max
            if not low <= self.replicas <= high:
                raise ValueError(f"replicas: expected a number from {low} to {high}, or none")
        return self

    def contradictions(self) -> Iterator[Problem]:
        yield from self.placement.contradictions()
        yield from like_an_id(self.name)
        if self.host is not None and is_of_machine(self.host):
            expected = "expected a name of its own: by this one all deployments are reached"
            yield Problem("host", repr(self.host), expected)
        yield from super().contradictions()
        yield from self.update.contradictions()
        for key, value in self.placement.between_kernels():
            yield Problem(f"placement.{key}", value, "this is for gangs: a replica is one process")
        if self.placement.set is not None:
            expected = "replicas are a set of their own, which is spread: leave it out"
            yield Problem("placement.set", repr(self.placement.set), expected)

    def template(self) -> Mapping[str, Any]:
        """The keys of which another value makes a new revision, as they are stored. ``environment``
        and ``uses`` of which nothing was said are none of them, so that revisions of versions that
        did not have the keys stay what they were."""
        keys = self.model_dump(mode="json", include=set(REPLACING))
        if not self.uses:
            del keys["uses"]
        if self.environment is None:
            del keys["environment"]
        return keys

    def digest(self) -> str:
        """A digest of ``template``, and of a probe by command, which is a part of each replica;
        equal ones are one revision."""
        text = json.dumps(self.template(), sort_keys=True)
        probe = self.probe
        if probe.command is not None:
            text += json.dumps([probe.command, probe.interval, probe.timeout])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def with_template(self, template: Mapping[str, Any]) -> "DeploymentSpec":
        """This spec with the template of another revision.

        Raises:
            ValidationError: the template was stored by a version with other rules.
        """
        kept = self.model_dump(mode="json", exclude=set(REPLACING), exclude_unset=True)
        return DeploymentSpec.model_validate(kept | dict(template), context=STORED)

    def with_replicas(self, replicas: int) -> "DeploymentSpec":
        """This spec with another number of replicas."""
        said = self.model_dump(mode="json", exclude_unset=True)
        return DeploymentSpec.model_validate(said | {"replicas": replicas}, context=STORED)

    def first_replicas(self) -> int:
        """The number of replicas to begin with."""
        if self.scale is None or "replicas" in self.model_fields_set:
            return self.replicas
        return self.scale.min

    def bearable(self, replicas: int) -> int:
        """How many replicas may be missing by others' doing, of so many: at least one, unless
        ``disruption`` is 0 itself."""
        return 0 if self.disruption.count == 0 else self.disruptable(replicas)

    def disruptable(self, replicas: int) -> int:
        """How many replicas are replaced at a time, of so many: as many as may be missing, and at
        least one."""
        return max(1, self.disruption.of(replicas, up=False))


KIND = DeploymentSpec
