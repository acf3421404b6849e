"""The provider ``script``: an operator's executable makes, deletes, lists and reboots machines. The
protocol is in docs/providers.md."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field, field_validator

from muster.autoscaling.standing import MAX_TOLD, CreateOutcome
from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.amounts import Duration, Environment, Spec, Text
from muster.core.specs.load import parse_spec
from muster.core.specs.pool import MachineShape, PoolSpec
from muster.core.text import made_text
from muster.files import make_directory
from muster.providers.provider import (
    Machine,
    MachineListing,
    Provider,
    ProviderError,
    Scope,
    SliceOrder,
)
from muster.providers.script import answers
from muster.providers.script.answers import Nonsense, document_in, refusal_in
from muster.providers.script.call import CallFailed, NotCalled, ScriptAnswer, call, environment
from muster.providers.starting import AgentPlace, start_script

T = TypeVar("T")

VERSION = 1
"""Of the protocol; told with each call."""
LONGEST_S = 55.0
"""Of a call: what it takes to end the executable is in the interface's CALL_S too."""
_DEFAULT_S = 50.0
_MAX_WORDS = 100
_MAY_BE_SILENT = ("check", "reboot")


class ScriptSettings(Spec):
    """The settings of a pool with this provider.

    Args:
        command: the executable, by its absolute path or its name on the controller's PATH, and
            arguments that stand before the name of the call.
        environment: variables for it, besides a few of the controller's. Admins see them with the
            pool.
        timeout: of a call, in seconds.
    """

    command: Annotated[tuple[Text, ...], Field(min_length=1, max_length=_MAX_WORDS)]
    environment: Environment = Field(default_factory=dict)
    timeout: Annotated[Duration, Field(ge=1, le=LONGEST_S)] = _DEFAULT_S

    @field_validator("command")
    @classmethod
    def _begins_with_a_program(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        program = command[0]
        if not program or ("/" in program and not program.startswith("/")):
            raise ValueError("expected an absolute path, or a name on the controller's PATH")
        return command


class Script(Provider):
    """Calls the executable once for each call, with a JSON document on standard input, and takes
    one from its standard output."""

    name: ClassVar[str] = "script"

    def __init__(self, spec: PoolSpec, scope: Scope) -> None:
        super().__init__(spec, scope)
        self._settings = _settings(spec)
        self._variables = environment(self._settings.environment)

    @classmethod
    def problems(cls, spec: PoolSpec) -> Iterable[Problem]:
        try:
            _settings(spec)
        except InvalidSpec as error:
            return error.problems
        return ()

    def check(self) -> None:
        self._ask("check", {"machine": _shape(self.spec.machine)}, answers.nothing)

    def create(self, order: SliceOrder) -> tuple[Machine, ...]:
        setup = order.setup
        request = {
            "slice": order.slice,
            "machine": _shape(order.shape),
            "preemptible": order.preemptible,
            "attributes": dict(order.attributes),
            "group": setup.group,
            "controller": setup.controller,
            "token": setup.token,
            "authority": setup.authority,
            "machines": [
                {"name": name, "start": start_script(order, name, AgentPlace())}
                for name in order.names
            ],
        }
        return self._ask(
            "create", request, lambda told: answers.created(told, order), secret=setup.token
        )

    def delete(self, slice_: str) -> bool:
        return self._ask("delete", {"slice": slice_}, answers.gone)

    def list(self) -> MachineListing:
        return self._ask("list", {}, answers.listed)

    def reboot(self, machine: Machine, *, hard: bool = False) -> None:
        told = {"id": machine.id, "slice": machine.slice, "name": machine.name}
        self._ask("reboot", {"machine": told, "hard": hard}, answers.nothing)

    def forget(self) -> None:
        # The directory is the executable's, whatever it keeps there.
        try:
            shutil.rmtree(self.scope.directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise ProviderError(CreateOutcome.UNKNOWN, made_text(str(error), MAX_TOLD)) from error

    def _ask(
        self,
        name: str,
        request: Mapping[str, Any],
        read: Callable[[dict[str, Any]], T],
        secret: str = "",
    ) -> T:
        """The answer to a call, as ``read`` takes it.

        Args:
            secret: is in the request. The executable may tell it, as a shell does that traces
                itself; nobody else is told.

        Raises:
            ProviderError: the executable says so, or fails, or answers nonsense.
        """
        command = [*self._settings.command, name]
        scope = self.scope
        tags = {
            "version": VERSION,
            "call": name,
            "cluster": scope.cluster,
            "pool": scope.pool,
        }
        outcome = CreateOutcome.UNKNOWN
        try:
            make_directory(scope.directory, is_set=True)
            answer = call(
                command,
                json.dumps(tags | {**request}).encode(),
                self._variables,
                scope.directory,
                self._settings.timeout,
                secret,
            )
            return _taken(answer, read, may_be_empty=name in _MAY_BE_SILENT)
        except ProviderError as refusal:
            outcome, told = refusal.outcome, refusal.told
        except (NotCalled, OSError) as error:
            outcome, told = CreateOutcome.BAD_REQUEST, f"{self._named(name)}: {error}"
        except (CallFailed, Nonsense) as error:
            told = f"{self._named(name)}: {error}"
        raise ProviderError(outcome, made_text(told, MAX_TOLD))

    def _named(self, name: str) -> str:
        return f"`{self._settings.command[0].rpartition('/')[2]} {name}`"


def _taken(answer: ScriptAnswer, read: Callable[[dict[str, Any]], T], *, may_be_empty: bool) -> T:
    """
    Raises:
        ProviderError: the executable answers with an error.
        CallFailed: it failed without one.
        Nonsense: its answer is none.
    """
    try:
        document = document_in(answer.output, may_be_empty=may_be_empty or answer.code != 0)
        refusal = refusal_in(document)
    except Nonsense:
        if answer.code == 0:
            raise
        refusal = None
    if refusal is not None:
        raise refusal
    if answer.code != 0:
        how = f"signal {-answer.code}" if answer.code < 0 else f"exit code {answer.code}"
        words = f": {answer.last_line}" if answer.last_line else " and says nothing"
        raise CallFailed(f"it ends with {how}{words}")
    return read(document)


def _settings(spec: PoolSpec) -> ScriptSettings:
    """
    Raises:
        InvalidSpec: they are wrong; fields begin with ``settings.``.
    """
    try:
        return parse_spec(ScriptSettings, dict(spec.settings))
    except InvalidSpec as error:
        problems = [replace(each, field=f"settings.{each.field}") for each in error.problems]
        raise InvalidSpec(problems) from None


def _shape(shape: MachineShape) -> dict[str, Any]:
    return {
        "cpu": shape.cpu / 1000,
        "memory_bytes": shape.memory,
        "disk_bytes": shape.disk,
        "gpus": shape.gpus,
        "gpu_model": shape.gpu_model,
        "gpu_memory_bytes": shape.gpu_memory,
        "extra": {name: milli / 1000 for name, milli in shape.extra.items()},
    }
