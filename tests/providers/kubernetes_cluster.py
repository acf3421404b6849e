"""A cluster of Kubernetes for tests, with pods and Secrets only.

It keeps what a real one promises: resource versions, label selectors, pages of one moment whose
tokens expire, watches, dry runs, refusals in the words of Kubernetes, deletion that takes its time,
and the garbage collector. Nodes are played: pods are scheduled and start, and end when they are
deleted, a moment later.
"""

import base64
import copy
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from tests.providers.kubernetes_rules import Object, Refusal, invalid, selector

_KINDS = {"pods": "Pod", "secrets": "Secret"}
_EVENTS_KEPT = 10_000

Key = tuple[str, str, str]  # kind, namespace, name


class Fault(StrEnum):
    """The fate of a request."""

    LOST = "lost"  # carried out; the connection ends without an answer
    THROTTLED = "throttled"
    ERROR = "error"
    NONSENSE = "nonsense"  # an answer that is no JSON
    HANG = "hang"  # nothing for longer than anybody waits
    DRIP = "drip"  # the answer comes one byte a moment
    TRUNCATED = "truncated"  # carried out; half of the answer
    EXPIRED = "expired"  # of a page's token
    FORBIDDEN = "forbidden"  # by something that is not Kubernetes
    CONFLICT = "conflict"  # with others who use the same quota
    RECOUNTED = "recounted"  # refused while a quota is counted anew
    ECHO = "echo"  # refused, in words that repeat what was sent


@dataclass(slots=True)
class _Planned:
    fault: Fault
    verb: str
    kind: str
    skip: int
    times: int


@dataclass(slots=True)
class Cluster:
    """The objects, and the rules that tests set.

    Args:
        namespaces: that exist.
        quota: at most so many pods in a namespace.
        starts_after_s: from a pod's creation to Running; None leaves pods unscheduled.
        ends_after_s: from a pod's deletion to its end, if its grace is not shorter.
        denied: (verb, kind) that nobody may do.
        collects: whether what an object owned is deleted after it.
        retry_after: what is said with the fault THROTTLED, in seconds.
        lost_nodes: whose pods do not end, whatever their grace.
    """

    namespaces: set[str] = field(default_factory=lambda: {"default", "work"})
    quota: int | None = None
    starts_after_s: float | None = 0.0
    ends_after_s: float = 0.05
    denied: set[tuple[str, str]] = field(default_factory=set)
    collects: bool = True
    retry_after: str = ""
    lost_nodes: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    objects: dict[Key, Object] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    planned: list[_Planned] = field(default_factory=list)
    version: int = 100
    events: deque[tuple[int, str, str, Object]] = field(
        default_factory=lambda: deque(maxlen=_EVENTS_KEPT)
    )
    pages: dict[str, list[Object]] = field(default_factory=dict)
    made_at: dict[str, float] = field(default_factory=dict)  # by uid
    ends_at: dict[str, float] = field(default_factory=dict)  # by uid, of those that are deleted
    closed: bool = False

    # What tests do

    def plan(self, fault: Fault, verb: str, kind: str, *, skip: int = 0, times: int = 1) -> None:
        """Have a fault happen to requests of this kind, from the next but ``skip`` on."""
        with self.changed:
            self.planned.append(_Planned(fault, verb, kind, skip, times))

    def named(self, kind: str, namespace: str = "work") -> list[str]:
        with self.changed:
            return sorted(key[2] for key in self.objects if key[:2] == (kind, namespace))

    def found(self, kind: str, name: str, namespace: str = "work") -> Object:
        with self.changed:
            return copy.deepcopy(self.objects[kind, namespace, name])

    def put(self, kind: str, found: Object, namespace: str = "work") -> None:
        """Make an object as somebody else."""
        self.create(kind, namespace, copy.deepcopy(found), dry_run=False)

    def edit(self, name: str, change: Callable[[Object], None], kind: str = "pods") -> None:
        """Change an object as its node, the scheduler or a person would."""
        with self.changed:
            found = self.objects[kind, "work", name]
            change(found)
            self._note("MODIFIED", kind, found)

    def evict(self, name: str, message: str) -> None:
        """Have a pod leave as with the drain of its node."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
        }
        now = _moment(time.time())
        condition |= {"message": message, "lastTransitionTime": now}
        self.edit(name, lambda pod: pod["status"]["conditions"].append(condition))
        self.delete("pods", "work", name, None, dry_run=False)

    def end(self, name: str, kind: str = "pods") -> None:
        """Have an object that is deleted be gone: its node, or whoever held it, let go."""
        with self.changed:
            self._remove((kind, "work", name))

    # What requests do

    def create(self, kind: str, namespace: str, wanted: Object, *, dry_run: bool) -> Object:
        with self.changed:
            if namespace not in self.namespaces:
                raise Refusal(404, "NotFound", f'namespaces "{namespace}" not found', namespace)
            name = wanted["metadata"]["name"]
            key = (kind, namespace, name)
            self._admit(kind, namespace, wanted)
            if (refusal := invalid(kind, wanted)) is not None:
                raise refusal
            if (there := self.objects.get(key)) is not None:
                going = "object is being deleted: " if _leaving(there) else ""
                message = f'{going}{kind} "{name}" already exists'
                raise Refusal(409, "AlreadyExists", message, name)
            fresh: Object = {"apiVersion": "v1", "kind": _KINDS[kind]} | wanted
            uid = str(uuid.uuid4())
            fresh["metadata"] |= {
                "namespace": namespace,
                "uid": uid,
                "creationTimestamp": _moment(time.time()),
            }
            if kind == "pods":
                fresh["spec"].setdefault("terminationGracePeriodSeconds", 30)
                fresh["status"] = {"phase": "Pending", "conditions": []}
            if not dry_run:
                self.objects[key] = fresh
                self.made_at[uid] = time.monotonic()
                self._note("ADDED", kind, fresh)
            return copy.deepcopy(fresh)

    def patch(
        self, kind: str, namespace: str, name: str, patch: Object, *, dry_run: bool
    ) -> Object:
        with self.changed:
            found = self._get(kind, namespace, name)
            merged = copy.deepcopy(found)
            merged["data"] = merged.get("data", {}) | patch.get("data", {})
            if (refusal := invalid(kind, merged)) is not None:
                raise refusal
            if not dry_run and merged != found:
                self.objects[kind, namespace, name] = merged
                self._note("MODIFIED", kind, merged)
            return merged

    def get(self, kind: str, namespace: str, name: str) -> Object:
        with self.changed:
            return copy.deepcopy(self._get(kind, namespace, name))

    def delete(
        self, kind: str, namespace: str, name: str, grace_s: int | None, *, dry_run: bool
    ) -> None:
        with self.changed:
            found = self._get(kind, namespace, name)
            if dry_run:
                return
            metadata = found["metadata"]
            if metadata.get("finalizers"):
                metadata["deletionTimestamp"] = _moment(time.time())
                self._note("MODIFIED", kind, found)
                return
            if kind != "pods" or not found["spec"].get("nodeName") or grace_s == 0:
                self._remove((kind, namespace, name))
                return
            grace_s = found["spec"]["terminationGracePeriodSeconds"] if grace_s is None else grace_s
            ends_at = time.monotonic() + min(grace_s, self.ends_after_s)
            uid = metadata["uid"]
            self.ends_at[uid] = min(ends_at, self.ends_at.get(uid, ends_at))
            if not _leaving(found):
                metadata["deletionTimestamp"] = _moment(time.time() + grace_s)
                metadata["deletionGracePeriodSeconds"] = grace_s
                self._note("MODIFIED", kind, found)

    def list(self, kind: str, namespace: str, query: dict[str, str]) -> Object:
        wanted = selector(query.get("labelSelector", ""))
        limit = int(query.get("limit", "0"))
        with self.changed:
            if token := query.get("continue"):
                if token not in self.pages:
                    message = "The provided continue parameter is too old to display"
                    raise Refusal(410, "Expired", message)
                items = self.pages.pop(token)
            else:
                there = sorted(key for key in self.objects if key[:2] == (kind, namespace))
                items = [copy.deepcopy(self.objects[key]) for key in there]
                items = [each for each in items if wanted(each)]
            metadata: Object = {"resourceVersion": str(self.version)}
            if limit and len(items) > limit:
                token = base64.b64encode(uuid.uuid4().bytes).decode()
                self.pages[token] = items[limit:]
                metadata |= {"continue": token, "remainingItemCount": len(items) - limit}
                items = items[:limit]
        answer = {"apiVersion": "v1", "kind": f"{_KINDS[kind]}List", "metadata": metadata}
        return answer | {"items": items}

    def watch(self, kind: str, namespace: str, query: dict[str, str]) -> Iterator[Object]:
        """Changes after a version, as they come.

        Raises:
            Refusal: the version is too old.
        """
        wanted = selector(query.get("labelSelector", ""))
        after = int(query.get("resourceVersion") or self.version)
        until = time.monotonic() + float(query.get("timeoutSeconds", "60"))
        with self.changed:
            if self.events and after < self.events[0][0] - 1:
                raise Refusal(410, "Expired", f"too old resource version: {after}")
        while not self.closed and (left_s := until - time.monotonic()) > 0:
            with self.changed:
                news = [each for each in self.events if each[0] > after and each[1] == kind]
                if not news:
                    self.changed.wait(min(left_s, 0.1))
            for version, _, change, found in news:
                after = version
                if found["metadata"]["namespace"] == namespace and wanted(found):
                    yield {"type": change, "object": found}

    def take_fault(self, verb: str, kind: str) -> Fault | None:
        with self.changed:
            for planned in self.planned:
                if (planned.verb, planned.kind) == (verb, kind) and planned.times:
                    if planned.skip:
                        planned.skip -= 1
                        continue
                    planned.times -= 1
                    return planned.fault
        return None

    # What the rest of a cluster does

    def settle(self) -> None:
        """Carry on what takes a moment."""
        now = time.monotonic()
        with self.changed:
            for key, found in list(self.objects.items()):
                uid = found["metadata"]["uid"]
                if now >= self.ends_at.get(uid, now + 1):
                    if found["spec"].get("nodeName") not in self.lost_nodes:
                        self._remove(key)
                elif self.collects and self._is_orphan(found) and uid not in self.ends_at:
                    self.delete(*key, None, dry_run=False)
                elif key[0] == "pods" and self._starts(found, now):
                    found["spec"]["nodeName"] = "node-1"
                    found["status"] |= {"phase": "Running", "podIP": "10.1.2.3"}
                    self._note("MODIFIED", "pods", found)

    def _starts(self, pod: Object, now: float) -> bool:
        status = pod["status"]
        if self.starts_after_s is None or status["phase"] != "Pending" or status["conditions"]:
            return False
        return now >= self.made_at[pod["metadata"]["uid"]] + self.starts_after_s

    def _is_orphan(self, found: Object) -> bool:
        owners = found["metadata"].get("ownerReferences", ())
        uids = {each["metadata"]["uid"] for each in self.objects.values()}
        return bool(owners) and not any(owner["uid"] in uids for owner in owners)

    def _admit(self, kind: str, namespace: str, wanted: Object) -> None:
        """Refuse as admission plugins do."""
        name = wanted["metadata"]["name"]
        if kind != "pods":
            return
        account = wanted["spec"].get("serviceAccountName", "default")
        if account not in ("default", "agents"):
            message = f"error looking up service account {namespace}/{account}: serviceaccount "
            message = f'pods "{name}" is forbidden: {message}"{account}" not found'
            raise Refusal(403, "Forbidden", message, name)
        used = sum(key[:2] == ("pods", namespace) for key in self.objects)
        if self.quota is not None and used >= self.quota:
            message = f"exceeded quota: compute, requested: pods=1, used: pods={used}, "
            message = f'pods "{name}" is forbidden: {message}limited: pods={self.quota}'
            raise Refusal(403, "Forbidden", message, name)

    def _get(self, kind: str, namespace: str, name: str) -> Object:
        try:
            return self.objects[kind, namespace, name]
        except KeyError:
            raise Refusal(404, "NotFound", f'{kind} "{name}" not found', name) from None

    def _remove(self, key: Key) -> None:
        found = self.objects.pop(key)
        self.ends_at.pop(found["metadata"]["uid"], None)
        self._note("DELETED", key[0], found)

    def _note(self, change: str, kind: str, found: Object) -> None:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, kind, change, copy.deepcopy(found)))
        self.changed.notify_all()


def _leaving(found: Object) -> bool:
    return "deletionTimestamp" in found["metadata"]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
