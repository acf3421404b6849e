"""The leash of plug-ins: a plug-in that raises, runs too long or answers nonsense is refused by
name, and a built-in part serves in its place.

Its time is counted in lines of Python, not in seconds, so that the count is the same on every
machine and in every replay. The leash is against accidents: a plug-in is code of the controller's
process, and a malicious one is not held by it.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from reprlib import Repr
from types import FrameType
from typing import Any, Protocol

import numpy as np

from muster.core.errors import MusterError
from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.core.resources import GPU_WHOLE, DeviceShare, Resources
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.policy.plugins import (
    AgentSelector,
    AllocationContext,
    AllocationResult,
    DeclaresDynamic,
    DeclaresPacks,
    LearningSelector,
    PassContext,
    SelectorPlugin,
    SequencerPlugin,
    SessionAllocator,
    SessionHook,
    SessionSequencer,
    SessionValidator,
)
from muster.scheduling.workload import KernelPlacement, SessionWorkload, WorkloadClass

MAX_LINES = 1_000_000
"""Lines of Python that one call of a plug-in may run: a second or so."""


class PluginFault(MusterError):
    """The plug-in ``name`` of this ``kind`` cannot be used; the text says why."""

    def __init__(self, kind: str, name: str, why: str) -> None:
        super().__init__(f"{kind} {name!r} {why}")
        self.kind = kind
        self.name = name
        self.why = why


class TooLate(BaseException):
    """Raised by a watchdog in a call that took too long by the clock. The text says how long."""


class Watchdog(Protocol):
    """Watches the clock during a plug-in's call, for code that runs without lines of Python: a last
    resort in a controller, and absent from a replay.

    ``armed`` is set by ``arm`` and cleared by its caller once the call has ended: from then on
    nothing is raised any more.
    """

    armed: bool

    def arm(self) -> None:
        """Note that a call begins, in which ``TooLate`` is to be raised when it takes too long."""

    def disarm(self) -> None:
        """Stop watching: the call has ended, and ``armed`` is cleared."""


class _NoWatchdog:
    """A Watchdog that never acts."""

    armed = False

    def arm(self) -> None:
        pass

    def disarm(self) -> None:
        pass


watchdog: Watchdog = _NoWatchdog()
"""The watchdog of this process; set once at its start."""


class _TooLong(BaseException):
    """A plug-in has run too many lines. The class is no Exception, so that few plug-ins catch it by
    accident."""


class _Cut:
    """A tracer of one frame that raises at its next line, and through ``again`` at each line after
    that.

    Python drops a tracer that has raised, and stops tracing. If a plug-in then caught the error,
    its further lines would not be counted. So ``again`` is called when the tracer is dropped, which
    is before any handler runs: it traces the frame anew, so that not even a bare ``except:`` in a
    loop can go on.
    """

    __slots__ = ("_again", "_frame")

    def __init__(self, again: Callable[[FrameType], None]) -> None:
        self._again = again
        self._frame: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> "_Cut":
        if event != "line":
            return self
        self._frame = frame
        del self  # or the traceback would keep it
        raise _TooLong

    def __del__(self) -> None:
        if self._frame is not None:
            self._again(self._frame)


_TOLD = Repr()
_TOLD.maxother = _TOLD.maxstring = 200


def _shortened(workload: object) -> str:
    """A short description of any object, even of one that cannot describe itself."""
    return _TOLD.repr(workload)


class _Leash:
    """Calls one plug-in."""

    def __init__(self, kind: str, name: str) -> None:
        self._kind = kind
        self._name = name

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """
        Raises:
            PluginFault: the plug-in raised, or ran too long.
        """
        left, over = MAX_LINES, False

        def count(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                return count
            return None if frame.f_code is _Cut.__del__.__code__ else _Cut(again)

        def again(frame: FrameType) -> None:
            if not over:
                frame.f_trace = _Cut(again)
                sys.settrace(count)

        before, watching = sys.gettrace(), watchdog
        watching.arm()
        try:
            try:
                sys.settrace(count)
                answer = function(*arguments)
            finally:
                # Nothing is called before this: a call would be counted, and an alarm could ring in
                # it.
                over, watching.armed = True, False
                sys.settrace(before)
                watching.disarm()
        except KeyboardInterrupt:
            raise
        except TooLate as late:
            raise self.fault(str(late)) from late
        except BaseException as error:  # even sys.exit(): no plug-in may end the process
            if left >= 0:
                raise self.fault(f"raised {_shortened(error)}") from error
        if left < 0:
            raise self.fault(f"ran for more than {MAX_LINES} lines in one call")
        return answer

    def fault(self, why: str) -> PluginFault:
        return PluginFault(self._kind, self._name, why)


class GuardedValidator:
    """A SessionValidator on a leash."""

    def __init__(self, name: str, inner: SessionValidator) -> None:
        self._leash = _Leash("validator", name)
        self.inner = inner

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        reasons = self._leash.call(self.inner.validate, workload, context)
        if not isinstance(reasons, Sequence) or not all(isinstance(r, Reason) for r in reasons):
            raise self._leash.fault(f"must answer reasons, not {_shortened(reasons)}")
        return tuple(reasons)


class GuardedSequencer(SessionSequencer):
    """A SessionSequencer on a leash."""

    def __init__(self, name: str, inner: SequencerPlugin) -> None:
        self._leash = _Leash("sequencer", name)
        self.inner = inner
        self._length: int | None = None  # of its keys, which must all be equally long
        self.dynamic = not isinstance(inner, DeclaresDynamic) or bool(inner.dynamic)

    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        key = self._leash.call(self.inner.key, session, context)
        numbers = isinstance(key, tuple) and all(isinstance(part, int | float) for part in key)
        if not numbers or not all(part == part for part in key):
            raise self._leash.fault(f"must answer a tuple of numbers, not {_shortened(key)}")
        if self._length is None:
            self._length = len(key)
        elif len(key) != self._length:
            raise self._leash.fault(
                f"must answer tuples of one length: {self._length} numbers as at first, not "
                f"{_shortened(key)}"
            )
        return tuple(key)


class GuardedSelector(AgentSelector):
    """An AgentSelector on a leash."""

    def __init__(self, name: str, inner: SelectorPlugin) -> None:
        self._leash = _Leash("selector", name)
        self.inner = inner
        self.packs = isinstance(inner, DeclaresPacks) and bool(inner.packs)

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        answer = self._leash.call(self.inner.score, request, snapshot, candidates)
        try:
            scores = np.asarray(answer, np.float64)
        except (TypeError, ValueError):
            raise self._leash.fault(f"must answer numbers, not {_shortened(answer)}") from None
        if scores.shape != candidates.shape or not np.isfinite(scores).all():
            raise self._leash.fault(
                f"must answer a finite number for each of {candidates.size} agents; it answered "
                f"{_shortened(answer)}"
            )
        return scores

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        shares = self._leash.call(self.inner.devices, request, snapshot, slot)
        milli, count = min(request.gpu_milli, GPU_WHOLE), request.gpu_devices
        usable = {index for _, index in snapshot.columns.devices_for(request, slot)}
        if (
            not isinstance(shares, tuple | list)
            or not all(isinstance(share, DeviceShare) for share in shares)
            or any(share.index not in usable or share.milli != milli for share in shares)
            or len({share.index for share in shares}) != count
            or len(shares) != count
        ):
            raise self._leash.fault(
                f"must answer {count} devices of which {milli}/1000 is free; it answered "
                f"{_shortened(shares)}"
            )
        return tuple(shares)


class GuardedLearner(GuardedSelector):
    """A LearningSelector on a leash."""

    def __init__(self, name: str, inner: SelectorPlugin, learner: LearningSelector) -> None:
        super().__init__(name, inner)
        self._learner = learner

    def arrived(self, request: Resources, kernels: int) -> None:
        self._leash.call(self._learner.arrived, request, kernels)


def guarded_selector(name: str, inner: SelectorPlugin) -> GuardedSelector:
    """The selector on a leash; a learning selector goes on learning."""
    if isinstance(inner, LearningSelector):
        return GuardedLearner(name, inner, inner)
    return GuardedSelector(name, inner)


class GuardedAllocator:
    """A SessionAllocator on a leash."""

    def __init__(self, name: str, inner: SessionAllocator) -> None:
        self._leash = _Leash("allocator", name)
        self.inner = inner

    def allocate(
        self,
        session: SessionWorkload,
        kernels: Sequence[KernelPlacement],
        context: AllocationContext,
    ) -> AllocationResult:
        result = self._leash.call(self.inner.allocate, session, kernels, context)
        if not isinstance(result, AllocationResult):
            raise self._leash.fault(f"must answer an AllocationResult, not {_shortened(result)}")
        reasons = tuple(result.reasons)
        if not all(isinstance(each, Reason) for each in reasons):
            raise self._leash.fault(f"must answer reasons, not {_shortened(reasons)}")
        if result.kernels is None:
            if not reasons:
                raise self._leash.fault("must give a reason where it allocates nothing")
            return AllocationResult(None, reasons)
        chosen = tuple(result.kernels)
        if len(chosen) != len(kernels) or not all(map(_is_alike, kernels, chosen)):
            raise self._leash.fault(
                f"must allocate as many devices on the same agents; it answered "
                f"{_shortened(chosen)}"
            )
        return AllocationResult(chosen)


def _is_alike(found: KernelPlacement, chosen: object) -> bool:
    """Whether a chosen place is on the same agent as the one that was found, with as many different
    devices of the same shares."""
    if not isinstance(chosen, KernelPlacement) or chosen.agent_id != found.agent_id:
        return False
    if not all(isinstance(each, DeviceShare) for each in chosen.shares):
        return False
    milli = [each.milli for each in chosen.shares]
    indexes = {each.index for each in chosen.shares}
    return milli == [each.milli for each in found.shares] and len(indexes) == len(milli)


class GuardedHook:
    """A SessionHook on a leash."""

    def __init__(self, name: str, inner: SessionHook) -> None:
        self._leash = _Leash("hook", name)
        self.inner = inner

    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        changed = self._leash.call(self.inner.on_schedule, workload)
        if not isinstance(changed, WorkloadClass):
            raise self._leash.fault(f"must answer a workload, not {_shortened(changed)}")
        if (changed.owner, changed.group, changed.type, changed.kernels) != (
            workload.owner,
            workload.group,
            workload.type,
            workload.kernels,
        ):
            raise self._leash.fault(
                "must answer a workload with the same owner, group, type and kernels"
            )
        return changed

    def before_start(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        changed = self._leash.call(self.inner.before_start, environment)
        if not isinstance(changed, Mapping) or not all(
            isinstance(name, str) and isinstance(value, str) for name, value in changed.items()
        ):
            raise self._leash.fault(f"must answer an environment, not {_shortened(changed)}")
        return dict(changed)

    def after_end(self, session: SessionId, succeeded: bool) -> None:
        self._leash.call(self.inner.after_end, session, succeeded)
