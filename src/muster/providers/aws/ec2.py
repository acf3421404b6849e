"""The provider ``aws-ec2``: a slice is one launch of EC2 instances, found by tags."""

import logging
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from muster.autoscaling.standing import CreateOutcome
from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.pool import PoolSpec
from muster.providers.aws.calls import CallConversation, CallLimits, Ec2Calls
from muster.providers.aws.errors import ELSEWHERE, MISMATCH, Ec2Error, fate_of
from muster.providers.aws.instances import (
    NOTICES,
    Instance,
    instances_in,
    instances_of,
    launches,
    notices_in,
)
from muster.providers.aws.launch import (
    CLUSTER,
    POOL,
    SLICE,
    client_token,
    launch_parameters,
    name_tags,
    tags,
)
from muster.providers.aws.recent import RecentLaunches
from muster.providers.aws.settings import settings_of
from muster.providers.provider import (
    MAX_LOG,
    AgentSetup,
    Machine,
    MachineListing,
    Provider,
    Scope,
    SliceOrder,
)

_log = logging.getLogger(__name__)
_ATTEMPTS = 32
"""Launches of one slice whose instances have ended, after which there is no other."""
_YOUNG_S = 300.0
"""So long the instances of a launch that are not listed may still come to be."""
_FORGOTTEN_S = 1800.0
"""Instances that are so old and not listed have ended: EC2 lists them for an hour after."""
_NAMED_AT_ONCE = 8
_DRY_RUN = "DryRunOperation"
_NO_INSTANCE = "InvalidInstanceID.NotFound"


class AwsEc2(Provider):
    """Slices of EC2 instances. All instances of a slice come from one call of RunInstances, in one
    subnet, and have the tags of its scope from their first moment."""

    name = "aws-ec2"
    limits: ClassVar[CallLimits] = CallLimits()

    def __init__(self, spec: PoolSpec, scope: Scope) -> None:
        super().__init__(spec, scope)
        self._settings = settings_of(spec)
        self._calls = Ec2Calls(self._settings, self.limits)
        self._recent = RecentLaunches(self.limits.settle_s)
        self._root_device: str | None = None

    @classmethod
    def problems(cls, spec: PoolSpec) -> Iterable[Problem]:
        try:
            settings_of(spec)
        except InvalidSpec as error:
            return error.problems
        return ()

    def check(self) -> None:
        asking = self._calls.begin()
        client = asking.client
        asking.ask(client.describe_instances, MaxResults=5, Filters=self._own())
        if template := self._settings.launch_template:
            parameters: dict[str, Any] = template.parameters()
            parameters["Versions"] = [parameters.pop("Version")]
            asking.ask(client.describe_launch_template_versions, **parameters)
        if self.spec.preemptible:
            asking.ask(client.describe_spot_instance_requests, MaxResults=5, Filters=self._own())
        for subnet in self._settings.subnets or ("",):
            self._try_launch(asking, subnet)

    def create(self, order: SliceOrder) -> tuple[Machine, ...]:
        asking = self._calls.begin()
        try:
            found = self._instances(asking, order.slice)
            whole = self._whole(asking, order, found)
            if whole:
                self._recent.answered(order.slice, "", [each.id for each in whole])
            else:
                whole = self._launch(asking, order, {each.token for each in found})
        except Ec2Error as error:
            last = self._recent.of(order.slice)
            if error.outcome is CreateOutcome.UNKNOWN or last is None or last.ids is not None:
                raise
            told = f"{error.told}; an earlier launch was not answered"
            raise Ec2Error(CreateOutcome.UNKNOWN, told) from error
        return self._named(asking, order, whole)

    def delete(self, slice_: str) -> bool:
        asking = self._calls.begin()
        found = self._instances(asking, slice_)
        self._terminate(asking, found)
        launch = self._recent.of(slice_)
        unlisted = launch is not None and self._terminate_unlisted(asking, launch.ids, found)
        return not unlisted and all(each.terminated for each in found)

    def list(self) -> MachineListing:
        asking = self._calls.begin()
        found: dict[str, Instance] = {}
        complete = True
        try:
            for page in asking.pages(asking.client.describe_instances, self._own()):
                found |= {each.id: each for each in instances_in(page, self.scope)}
        except Ec2Error as error:
            if not found:
                raise
            _log.warning("pool %s is listed in part: %s", self.scope.pool, error)
            complete = False
        # What was launched a moment ago may not be listed yet: that there is no more is not said.
        complete = self._recent.all_listed(found) and complete
        here = [each for each in found.values() if not each.terminated]
        leave = self._notices(asking) if any(each.spot for each in here) else {}
        machines = [each.machine(leaves_at=leave.get(each.id)) for each in here]
        machines.sort(key=lambda each: (each.slice, each.name))
        return MachineListing(tuple(machines), complete)

    def reboot(self, machine: Machine, *, hard: bool = False) -> None:
        """Have a machine boot anew. RebootInstances asks its operating system, and EC2 itself cuts
        the power if that does not help within minutes. ``hard`` stops it by force and starts it
        again, which loses its instance store and may move it; where it cannot be stopped, as a spot
        instance, it is as if ``hard`` were false. A machine that is stopped is started.

        Raises:
            ProviderError: it could not be told; or it is still stopping, and another call is needed
                to start it.
        """
        asking = self._calls.begin()
        instance = self._instance(asking, machine)
        if instance.state == "running" and not (hard and instance.stoppable):
            asking.ask(asking.client.reboot_instances, InstanceIds=[instance.id])
            return
        if instance.state == "running":
            asking.ask(asking.client.stop_instances, InstanceIds=[instance.id], Force=True)
        while instance.state != "stopped":
            if instance.state == "pending":
                return
            if not asking.pause():
                told = f"{instance.id} is stopping: another call starts it"
                raise Ec2Error(CreateOutcome.UNKNOWN, told)
            instance = self._instance(asking, machine)
        asking.ask(asking.client.start_instances, InstanceIds=[instance.id])

    def log(self, machine: Machine) -> str:
        """The end of the console's output, which EC2 has some minutes after the boot began."""
        asking = self._calls.begin()
        answer = asking.ask(asking.client.get_console_output, InstanceId=machine.id)
        return str(answer.get("Output") or "")[-MAX_LOG:]

    def close(self) -> None:
        self._calls.close()

    # What there is

    def _own(self, **more: str) -> Sequence[dict[str, Any]]:
        values = {CLUSTER: self.scope.cluster, POOL: self.scope.pool, **more}
        return [{"Name": f"tag:{key}", "Values": [value]} for key, value in values.items()]

    def _instances(self, asking: CallConversation, slice_: str) -> Sequence[Instance]:
        """The instances of a slice, those that have ended included as long as EC2 lists them."""
        found: dict[str, Instance] = {}
        filters = self._own(**{SLICE: slice_})
        for page in asking.pages(asking.client.describe_instances, filters):
            found |= {
                each.id: each for each in instances_in(page, self.scope) if each.slice == slice_
            }
        return tuple(found.values())

    def _instance(self, asking: CallConversation, machine: Machine) -> Instance:
        """
        Raises:
            Ec2Error: it is none of this pool, or is being deleted.
        """
        describe = asking.client.describe_instances
        answer = asking.ask(describe, InstanceIds=[machine.id], Filters=self._own())
        for each in instances_in(answer, self.scope):
            if each.id == machine.id and not each.ended:
                return each
        told = f"{machine.id} is no machine of pool {self.scope.pool}, or is being deleted"
        raise Ec2Error(CreateOutcome.BAD_REQUEST, told)

    def _notices(self, asking: CallConversation) -> dict[str, float]:
        """When instances are taken back, by id. Where that cannot be read, the machines are told
        without it."""
        filters = [*self._own(), {"Name": "status-code", "Values": [*NOTICES]}]
        notices: dict[str, float] = {}
        try:
            for page in asking.pages(asking.client.describe_spot_instance_requests, filters):
                notices |= notices_in(page)
        except Ec2Error as error:
            _log.warning("spot notices of pool %s are not known: %s", self.scope.pool, error)
        return notices

    # Making

    def _whole(
        self, asking: CallConversation, order: SliceOrder, found: Sequence[Instance]
    ) -> Sequence[Instance]:
        """The launch that is the slice, whole; empty if none of its instances lives. Instances of
        other launches are terminated.

        Raises:
            Ec2Error: only some instances of the slice live. They are terminated, unless the others
                may not be listed yet.
        """
        whole: list[Instance] = []
        rest: list[Instance] = []
        for launch in launches(found):
            living = [each for each in launch if not each.ended]
            if not whole and len(living) == len(order.names):
                whole = living
            elif not whole and len(living) == len(launch) and _young(launch):
                told = f"{len(living)} of {len(order.names)} machines are listed so far"
                raise Ec2Error(CreateOutcome.UNKNOWN, told)
            else:
                rest += living
        try:
            self._terminate(asking, rest)
        except Ec2Error as error:
            told = f"what is left of an earlier launch is not deleted: {error.told}"
            raise Ec2Error(CreateOutcome.UNKNOWN, told, error.code) from error
        if rest and not whole:
            reasons = [each.reason for each in found if each.ended]
            told = f"{len(rest)} of {len(order.names)} machines were left, and are deleted now"
            raise Ec2Error(fate_of(reasons), "; ".join([told, *sorted({*reasons})]))
        return whole

    def _launch(
        self, asking: CallConversation, order: SliceOrder, tokens: set[str]
    ) -> Sequence[Instance]:
        """Launch a slice in the first subnet that has room.

        Args:
            tokens: client tokens of launches whose instances have ended.
        """
        refusals: list[Ec2Error] = []
        for subnet in self._subnets(order.slice):
            try:
                return self._launch_in(asking, order, subnet, tokens)
            except Ec2Error as error:
                elsewhere = error.outcome is CreateOutcome.STOCK_OUT or error.code in ELSEWHERE
                if not elsewhere:
                    raise
                refusals.append(error)
        first = min(refusals, key=lambda each: each.outcome is not CreateOutcome.STOCK_OUT)
        tried = f" (and {len(refusals) - 1} more subnets)" if len(refusals) > 1 else ""
        raise Ec2Error(first.outcome, f"{first.told}{tried}", first.code)

    def _launch_in(
        self, asking: CallConversation, order: SliceOrder, subnet: str, tokens: set[str]
    ) -> Sequence[Instance]:
        device = self._device(asking)
        parameters = launch_parameters(order, self.scope, self._settings, subnet, device)
        for attempt in range(_ATTEMPTS):
            token = client_token(self.scope, order.slice, subnet, attempt)
            if token in tokens:
                continue
            made = self._run(asking, order, subnet, {**parameters, "ClientToken": token})
            if whole := self._whole(asking, order, made):
                return whole
        told = f"{_ATTEMPTS} launches of this slice have ended"
        raise Ec2Error(CreateOutcome.BAD_REQUEST, told)

    def _run(
        self, asking: CallConversation, order: SliceOrder, subnet: str, parameters: dict[str, Any]
    ) -> Sequence[Instance]:
        """The instances of a launch, or of the earlier one that had this client token."""
        before = self._recent.asked(order.slice, subnet)
        try:
            answer = asking.ask(asking.once.run_instances, **parameters)
        except Ec2Error as error:
            if error.code == MISMATCH:
                told = "an earlier call launched this slice otherwise, and it is not listed yet"
                raise Ec2Error(CreateOutcome.UNKNOWN, told, MISMATCH) from error
            if error.outcome is not CreateOutcome.UNKNOWN:
                self._recent.refused(order.slice, before)
            raise
        made = [*instances_of(answer, self.scope)]
        if len(made) != len(order.names):
            told = f"EC2 answered {len(made)} machines in place of {len(order.names)}"
            raise Ec2Error(CreateOutcome.UNKNOWN, told)
        self._recent.answered(order.slice, subnet, [each.id for each in made])
        return [each for each in made if time.time() - each.launched < _FORGOTTEN_S]

    def _try_launch(self, asking: CallConversation, subnet: str) -> None:
        """
        Raises:
            Ec2Error: EC2 would refuse a slice in this subnet.
        """
        names = tuple(f"{self.scope.pool}-check-{each:04}" for each in range(self.spec.slice_size))
        setup = AgentSetup("controller.example.org:7077", self.spec.group, "no-token")
        attributes = self.spec.attributes
        preemptible = self.spec.preemptible
        order = SliceOrder("check", names, self.spec.machine, preemptible, attributes, setup)
        device = self._device(asking)
        parameters = launch_parameters(order, self.scope, self._settings, subnet, device)
        try:
            asking.ask(asking.once.run_instances, DryRun=True, **parameters)
        except Ec2Error as error:
            if error.code != _DRY_RUN:
                raise

    def _subnets(self, slice_: str) -> Sequence[str]:
        """The subnets in the order in which they are tried. One whose launch was not answered is
        the first: its client token tells what became of that."""
        subnets = self._settings.subnets or ("",)
        last = self._recent.of(slice_)
        if last is None or last.subnet not in subnets:
            return subnets
        return sorted(subnets, key=lambda each: each != last.subnet)

    def _device(self, asking: CallConversation) -> str | None:
        """The root device of the image, where the settings say how large it is to be."""
        if self._settings.volume_gb is not None and self._root_device is None:
            describe = asking.client.describe_images
            images = asking.ask(describe, ImageIds=[self._settings.image]).get("Images", ())
            self._root_device = next((each["RootDeviceName"] for each in images), None)
        return self._root_device

    def _named(
        self, asking: CallConversation, order: SliceOrder, whole: Sequence[Instance]
    ) -> tuple[Machine, ...]:
        """The machines of a slice, each with the tag of its name. One that is launched with others
        gets it afterwards, as all instances of a launch are launched with the same tags."""
        names = dict(enumerate(order.names))
        machines = [each.machine(names.get(each.index, "")) for each in whole]
        unnamed = [
            machine
            for machine, each in zip(machines, whole, strict=True)
            if not each.name and machine.name != each.id
        ]
        try:
            with ThreadPoolExecutor(_NAMED_AT_ONCE) as threads:
                for _ in threads.map(lambda each: self._tag(asking, each), unnamed):
                    pass
        except Ec2Error as error:
            told = f"made, but not all machines have their name as a tag: {error.told}"
            raise Ec2Error(CreateOutcome.UNKNOWN, told, error.code) from error
        return tuple(machines)

    def _tag(self, asking: CallConversation, machine: Machine) -> None:
        own = tags(name_tags(machine.name))
        while True:
            try:
                asking.ask(asking.client.create_tags, Resources=[machine.id], Tags=own)
                return
            except Ec2Error as error:  # an instance may be made before EC2 knows it everywhere
                if error.code != _NO_INSTANCE or not asking.pause():
                    raise

    # Deleting

    def _terminate(self, asking: CallConversation, instances: Iterable[Instance]) -> None:
        ids = [each.id for each in instances if not each.ended]
        if ids:
            asking.ask(asking.client.terminate_instances, InstanceIds=ids)

    def _terminate_unlisted(
        self, asking: CallConversation, ids: frozenset[str] | None, found: Sequence[Instance]
    ) -> bool:
        """Terminate instances that were just launched and are not listed yet; the answer says
        whether there are, or may be, such."""
        if ids is None:
            return True
        unlisted = sorted(ids.difference(each.id for each in found))
        if unlisted:
            try:
                asking.ask(asking.client.terminate_instances, InstanceIds=unlisted)
            except Ec2Error as error:
                if error.code != _NO_INSTANCE:
                    raise
        return bool(unlisted)


def _young(launch: Sequence[Instance]) -> bool:
    return time.time() - launch[0].launched < _YOUNG_S
