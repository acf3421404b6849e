"""The kernels that a supervisor knows: from their acceptance until their end is acknowledged."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator

from muster.agent.supervisor.kernel import Event, OwnKernel
from muster.agent.supervisor.protocol import Key, ProtocolError

_MAX_BURIED = 10_000


class KnownKernels:
    """Known kernels by (id, generation), and the keys of kernels that were stopped before their
    start was heard of.

    ``live`` has the kernels that have neither ended nor failed; the supervisor maintains it.
    """

    def __init__(self) -> None:
        self.live: dict[Key, OwnKernel] = {}
        self._known: dict[Key, OwnKernel] = {}
        self._newest: dict[str, OwnKernel] = {}  # id -> its highest generation known
        self._finals: deque[tuple[int, OwnKernel]] = deque()  # events after which a kernel may go
        self._buried: OrderedDict[Key, int] = OrderedDict()  # stopped before heard of -> seq

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[OwnKernel]:
        return iter(self._known.values())

    def __getitem__(self, key: Key) -> OwnKernel:
        return self._known[key]

    def get(self, key: Key) -> OwnKernel | None:
        return self._known.get(key)

    def live_in_stop_order(self) -> list[OwnKernel]:
        """All live kernels; those first that would be started when others end."""
        return sorted(self.live.values(), key=lambda kernel: not kernel.prefilled)

    def newest(self, kernel_id: str) -> OwnKernel | None:
        """The highest generation of a kernel."""
        return self._newest.get(kernel_id)

    def add(self, kernel: OwnKernel) -> None:
        self._known[kernel.key] = kernel
        newest = self._newest.get(kernel.id)
        if newest is None or newest.generation <= kernel.generation:
            self._newest[kernel.id] = kernel

    def note_final(self, seq: int, kernel: OwnKernel) -> None:
        """Note the event after whose acknowledgement a kernel may be forgotten."""
        kernel.last_final_seq = seq
        self._finals.append((seq, kernel))

    def note_finals(self, events: Iterable[Event]) -> None:
        """Note which of these events are the last of their kernels so far."""
        for event in events:
            if event["kind"] not in ("created", "started"):
                self.note_final(event["seq"], self._known[event["kernel"], event["generation"]])

    def forget_up_to(self, seq: int) -> None:
        """Forget the kernels whose last event is among those up to `seq`."""
        while self._finals and self._finals[0][0] <= seq:
            final_seq, kernel = self._finals.popleft()
            # The kernel may have failed, been started again, and ended since.
            if kernel.last_final_seq == final_seq and kernel.key not in self.live:
                self._known.pop(kernel.key, None)
                if self._newest.get(kernel.id) is kernel:
                    del self._newest[kernel.id]

    def bury(self, key: Key, seq: int) -> None:
        """Note that a kernel was stopped before its start command came, which is ignored from now
        on; `seq` is the number of the event that reported this."""
        self._buried[key] = seq
        if len(self._buried) > _MAX_BURIED:
            self._buried.popitem(last=False)

    def buried_seq(self, key: Key) -> int:
        """The number of the event that told of a buried kernel; 0 if it is not buried."""
        return self._buried.get(key, 0)

    def check_ended(self, keys: Iterable[Key]) -> None:
        """
        Raises:
            ProtocolError: one of these kernels has not ended.
        """
        for kernel_id, generation in keys:
            if (kernel_id, generation) in self.live:
                raise ProtocolError(f"kernel {kernel_id}, generation {generation}, has not ended")
