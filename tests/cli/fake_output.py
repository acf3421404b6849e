"""The outputs of a cluster of data, as a client reads them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.core.errors import Conflict
from muster.core.views.work import ShortOutputs, ShortOutputView


@dataclass
class FakeOutput:
    """The part of ``FakeCluster`` that has the outputs of tasks, by their indexes, and what
    they wrote to stderr; those of the ``short`` ones come together with others."""

    output: dict[int, list[bytes]] = field(default_factory=dict)
    errors: dict[int, list[bytes]] = field(default_factory=dict)
    short: frozenset[int] = frozenset()
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def short_outputs(self, ref: str, tasks: Iterable[int]) -> ShortOutputs:
        asked = [*tasks]
        self.asked.append(("short_outputs", asked))
        found = [each for each in asked if each in self.short]
        return ShortOutputs(
            items=tuple(
                ShortOutputView(task=each, attempt=1, data=b"".join(self.output[each]))
                for each in found
            )
        )

    def logs(
        self,
        ref: str,
        *,
        task: int = 0,
        attempt: int | None = None,
        tail_bytes: int | None = None,
        follow: bool = False,
        retries: bool | None = None,
        on_cut: Callable[[int], None] | None = None,
        stderr: bool = False,
    ) -> Iterator[bytes]:
        self.asked.append(("logs", (task, attempt, tail_bytes, follow)))
        written = self.errors if stderr else self.output
        if task not in written:
            raise Conflict(f"task {task} has not started")
        data = b"".join(written[task])
        begin = 0 if tail_bytes is None else max(len(data) - tail_bytes, 0)
        yield from [data[begin:]] if begin else written[task]

    def session_logs(self, ref: str, *, kernel: int = 0, **more: Any) -> Iterator[bytes]:
        if kernel in self.output:
            yield from self.logs(ref, task=kernel, **more)
