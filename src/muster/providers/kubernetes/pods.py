"""The provider ``kubernetes``: a slice is a Secret and the pods that it owns.

Nothing is watched: whoever asks for a list asks for it anew, and a watch would be a second, older
copy of what the API server knows, on a thread that can hang.
"""

import builtins
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import ClassVar

from lightkube.resources.core_v1 import Pod, Secret

from muster.autoscaling.standing import CreateOutcome
from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.pool import PoolSpec
from muster.providers.kubernetes import naming
from muster.providers.kubernetes.api import Absent, AlreadyThere, KubernetesApi
from muster.providers.kubernetes.manifests import PodPlan, is_ours, is_owned_by, secret_of
from muster.providers.kubernetes.observed import is_leaving, machine_of, name_of
from muster.providers.kubernetes.settings import KubernetesSettings, read_settings
from muster.providers.provider import (
    CALL_S,
    AgentSetup,
    Machine,
    MachineListing,
    Provider,
    ProviderError,
    Scope,
    SliceOrder,
)

LIMIT_S = CALL_S - 20.0
"""Longest call. A request that begins just before its end may take ten seconds more."""
UNDO_S = 10.0
"""The part of a call in which a slice that cannot be made whole is deleted."""
PAUSE_S = 0.25
"""Between two looks at a pod that ends."""
_LEAST_GRACE_S = 1


class KubernetesPods(Provider):
    """Machines of one pool, as pods.

    A slice's Secret is made before its pods and deleted before them. It owns them, so that a pod
    that is made after all by a request that nobody waits for any more does not stay.
    """

    name: ClassVar[str] = "kubernetes"

    def __init__(self, spec: PoolSpec, scope: Scope) -> None:
        super().__init__(spec, scope)
        self._settings: KubernetesSettings = read_settings(spec.settings)
        self._api = KubernetesApi(self._settings)

    @classmethod
    def problems(cls, spec: PoolSpec) -> Iterable[Problem]:
        try:
            read_settings(spec.settings)
        except InvalidSpec as error:
            return error.problems
        return ()

    def close(self) -> None:
        self._api.close()

    def check(self) -> None:
        """Have the API server do as if it made, changed and deleted a slice: that tells wrong
        settings, a used up quota, and every permission that is lacking.

        Raises:
            ProviderError: why no slice could be made.
        """
        api = self._api
        setup = AgentSetup("check.invalid:1", self.spec.group, token="")
        order = SliceOrder("check", ("check",), self.spec.machine, False, {}, setup)
        secret = secret_of(order, self._settings, self.scope)
        pod = PodPlan.of(order, self._settings).pod(self.scope, 0, None)
        with api.within(LIMIT_S):
            try:
                api.create(secret, dry_run=True)
                api.create(pod, dry_run=True)
            except AlreadyThere:
                taken = f"{name_of(pod)} or its Secret exists: delete it"
                raise ProviderError(CreateOutcome.BAD_REQUEST, taken) from None
            api.pods(naming.labels(naming.of_slice(self.scope, order.slice)))
            api.get(Secret, naming.secret_name(self.scope, order.slice))
            api.get(Pod, name_of(pod))
            with suppress(Absent):
                api.patch(secret, dry_run=True)
            api.delete(Secret, naming.secret_name(self.scope, order.slice), dry_run=True)
            api.delete(Pod, name_of(pod), dry_run=True)

    def create(self, order: SliceOrder) -> tuple[Machine, ...]:
        """See ``Provider``. A server that refuses the first look at what there is has its refusal
        told as it is, though an earlier call may have made something."""
        with self._api.within(LIMIT_S - UNDO_S):
            secret, begun = self._make_secret(order)
            plan = PodPlan.of(order, self._settings)
            try:
                # What is there is not asked for again: a full quota would refuse it, and a large
                # slice is not made in the time of one call.
                there = {name_of(pod): pod for pod in self._pods_of(order.slice)} if begun else {}
                pods = [self._make(plan, index, secret, there) for index in range(len(plan.names))]
                return tuple(machine_of(pod) for pod in pods)
            except ProviderError as error:
                if error.outcome is CreateOutcome.UNKNOWN:
                    raise
                refused = error
        self._undo(order.slice, refused)
        raise refused

    def delete(self, slice_: str) -> bool:
        with self._api.within(LIMIT_S):
            return self._delete(slice_)

    def list(self) -> MachineListing:
        with self._api.within(LIMIT_S):
            pods, complete = self._pods(naming.of_pool(self.scope))
        return MachineListing(tuple(machine_of(pod) for pod in pods), complete)

    def reboot(self, machine: Machine, *, hard: bool = False) -> None:
        """Replace a pod by one that is equal: pods do not boot. The agent is the same, with the
        credential that the Secret keeps for it, and has lost its directory.

        Args:
            hard: its processes are killed after a second. Still the node must say that they have
                ended: a forced deletion waits for nobody, and the former pod's work could run on
                beside the new one's.

        Raises:
            ProviderError: it was not made anew, but may be gone. The call may be repeated.
        """
        with self._api.within(LIMIT_S):
            secret = self._secret(machine.slice)
            if secret is None or is_leaving(secret):
                told = f"slice {machine.slice} is not there any more"
                raise ProviderError(CreateOutcome.BAD_REQUEST, told)
            plan = PodPlan.kept_in(secret)
            if plan is None or machine.name not in plan.names:
                told = f"the Secret of slice {machine.slice} has no plan of {machine.name}"
                raise ProviderError(CreateOutcome.BAD_REQUEST, told)
            index = plan.names.index(machine.name)
            pod = self._pod(plan, index)
            if pod is not None and (hard or not is_leaving(pod)):
                self._api.delete(Pod, name_of(pod), grace_s=_LEAST_GRACE_S if hard else None)
            self._wait_until_gone(plan, index)
            self._make(plan, index, secret, {})

    def _make_secret(self, order: SliceOrder) -> tuple[Secret, bool]:
        """The Secret of a slice, with the token of this order, and whether an earlier call has made
        it.

        Raises:
            ProviderError: nothing was made, unless it is UNKNOWN.
        """
        name = naming.secret_name(self.scope, order.slice)
        found = self._api.get(Secret, name)
        if found is None:
            try:
                return self._api.create(secret_of(order, self._settings, self.scope)), False
            except AlreadyThere:  # of another controller, at the same moment
                found = self._api.get(Secret, name)
        if found is not None and not is_ours(found, naming.of_slice(self.scope, order.slice)):
            told = f"Secret {name_of(found)} belongs to somebody else"
            raise ProviderError(CreateOutcome.BAD_REQUEST, told)
        if found is None or is_leaving(found):
            told = f"slice {order.slice} is being deleted"
            raise ProviderError(CreateOutcome.UNKNOWN, told)
        wanted = secret_of(order, self._settings, self.scope, former=found)
        if wanted.data == found.data:
            return found, True
        try:
            return self._api.patch(wanted), True
        except ProviderError as error:  # an earlier call may have made pods
            raise ProviderError(CreateOutcome.UNKNOWN, error.told) from None

    def _make(self, plan: PodPlan, index: int, secret: Secret, there: Mapping[str, Pod]) -> Pod:
        """The pod of a machine, made now or by an earlier call.

        Args:
            there: pods of the slice that are known already, by name.
        """
        wanted = plan.pod(self.scope, index, secret)
        found = there.get(name_of(wanted))
        if found is None:
            try:
                return self._api.create(wanted)
            except AlreadyThere:
                found = self._pod(plan, index)
        # The garbage collector has yet to come to a pod whose Secret is gone.
        if found is None or is_leaving(found) or not is_owned_by(found, secret):
            told = f"pod {name_of(wanted)} of an earlier call is being deleted"
            raise ProviderError(CreateOutcome.UNKNOWN, told)
        return found

    def _undo(self, slice_: str, refused: ProviderError) -> None:
        """Delete what was made of a slice that was refused.

        Raises:
            ProviderError: UNKNOWN, some of it may be left.
        """
        why = "it is still being deleted"
        try:
            with self._api.within(UNDO_S):
                while not self._delete(slice_, grace_s=_LEAST_GRACE_S):
                    if self._api.left_s() < 2 * PAUSE_S:
                        break
                    time.sleep(PAUSE_S)
                else:
                    return
        except ProviderError as error:
            why = error.told
        told = f"{refused.told}; some of the slice was made: {why}"
        raise ProviderError(CreateOutcome.UNKNOWN, told)

    def _delete(self, slice_: str, grace_s: int | None = None) -> bool:
        """Delete what there is of a slice; the answer says whether nothing is left of it."""
        if (secret := self._secret(slice_)) is not None and not is_leaving(secret):
            self._api.delete(Secret, name_of(secret))
        failed: ProviderError | None = None
        pods = self._pods_of(slice_)
        for pod in pods:
            if not is_leaving(pod):
                try:
                    self._api.delete(Pod, name_of(pod), grace_s=grace_s)
                except ProviderError as error:  # the others go all the same
                    failed = error
        if failed is not None:
            raise failed
        return not (pods and self._pods_of(slice_)) and self._secret(slice_) is None

    def _wait_until_gone(self, plan: PodPlan, index: int) -> None:
        while (pod := self._pod(plan, index)) is not None:
            if self._api.left_s() < 2 * PAUSE_S:
                told = f"pod {name_of(pod)} has not ended yet"
                raise ProviderError(CreateOutcome.UNKNOWN, told)
            time.sleep(PAUSE_S)

    def _secret(self, slice_: str) -> Secret | None:
        """The Secret of a slice; None if there is none that is the pool's own."""
        found = self._api.get(Secret, naming.secret_name(self.scope, slice_))
        ours = found is not None and is_ours(found, naming.of_slice(self.scope, slice_))
        return found if ours else None

    def _pod(self, plan: PodPlan, index: int) -> Pod | None:
        """The pod of a machine, if there is one.

        Raises:
            ProviderError: there is one of its name that is somebody else's.
        """
        found = self._api.get(Pod, naming.pod_name(self.scope, plan.slice, index))
        originals = naming.of_machine(self.scope, plan.slice, plan.names[index])
        if found is not None and not is_ours(found, originals):
            told = f"pod {name_of(found)} belongs to somebody else"
            raise ProviderError(CreateOutcome.BAD_REQUEST, told)
        return found

    def _pods_of(self, slice_: str) -> builtins.list[Pod]:
        """All pods of a slice.

        Raises:
            ProviderError: there may be others.
        """
        pods, complete = self._pods(naming.of_slice(self.scope, slice_))
        if not complete:
            raise ProviderError(CreateOutcome.UNKNOWN, "not all pods could be listed")
        return pods

    def _pods(self, originals: Mapping[str, str]) -> tuple[builtins.list[Pod], bool]:
        pods, complete = self._api.pods(naming.labels(originals))
        return [pod for pod in pods if is_ours(pod, originals)], complete
