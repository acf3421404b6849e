"""Processors, memory and GPUs that a batch script asks for, as the request of one kernel."""

from dataclasses import dataclass, field

from muster.cli.sbatch import amounts
from muster.cli.sbatch.header import SbatchError
from muster.cli.sbatch.options import Values


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """The amounts that one machine is asked for.

    Args:
        tasks: processes for which there are processors.
        memory: bytes; None where there is no limit.
        model: of the GPUs; empty for any.
        told: sentences on what is not done.
    """

    tasks: int
    cpus: int
    memory: int | None
    gpus: int
    model: str
    told: tuple[str, ...] = field(default=())

    def keys(self) -> dict[str, object]:
        """The ``resources`` of a spec."""
        keys: dict[str, object] = {"cpu": self.cpus}
        if self.memory:
            keys["memory"] = str(self.memory)
        if self.gpus:
            keys["gpu"] = self.gpus
        if self.model:
            keys["gpu_model"] = [self.model]
        return keys


def request_of(values: Values) -> MachineRequest:
    """
    Raises:
        SbatchError: an amount is wrong, or more than one machine is asked for.
    """
    _refuse_several_nodes(values)
    told: list[str] = []
    tasks = _count(values, "ntasks", _count(values, "ntasks-per-node", 1))
    gpus, model = _gpus(values, tasks, told)
    per_task = _count(values, "cpus-per-task", 1)
    cpus = tasks * per_task
    if "cpus-per-gpu" in values and "cpus-per-task" not in values:
        cpus = max(tasks, gpus * _count(values, "cpus-per-gpu", 1))
    cpus = max(cpus, _count(values, "mincpus", 1))
    memory = _memory(values, cpus, gpus, told)
    return MachineRequest(tasks, cpus, memory, gpus, model, tuple(told))


def _count(values: Values, name: str, otherwise: int) -> int:
    return amounts.number(name, values[name]) if name in values else otherwise


def _refuse_several_nodes(values: Values) -> None:
    """
    Raises:
        SbatchError: more than one machine is asked for.
    """
    least = values.get("nodes", "1").partition("-")[0]
    if amounts.number("nodes", least) > 1:
        raise SbatchError(
            "--nodes: a batch script gets one machine so far; what runs on several is a spec with "
            "`coscheduled: true` and a task for each machine"
        )


def _gpus(values: Values, tasks: int, told: list[str]) -> tuple[int, str]:
    """How many GPUs, and their model; each further option that asks for some asks for no less.

    Raises:
        SbatchError: the options ask for several models.
    """
    asked = [(0, "")]
    for name, times in (("gpus", 1), ("gpus-per-node", 1), ("gpus-per-task", tasks)):
        if name in values:
            count, model = amounts.gpus(name, values[name])
            asked.append((count * times, model))
    if "gres" in values:
        count, model, others = amounts.gres(values["gres"])
        asked.append((count, model))
        told += [f"--gres={each} has no effect: only GPUs are known here" for each in others]
    count = max(count for count, _ in asked)
    models = {model for _, model in asked if model}
    if len(models) > 1:
        raise SbatchError(f"GPUs of {' and '.join(sorted(models))} cannot be given together")
    return count, "".join(models) if count else ""


def _memory(values: Values, cpus: int, gpus: int, told: list[str]) -> int | None:
    """Bytes; the last of the three options counts, as they exclude each other."""
    times = {"mem": 1, "mem-per-cpu": cpus, "mem-per-gpu": gpus}
    named = [name for name in values if name in times]
    if not named:
        return None
    name = named[-1]
    if times[name] == 0:
        told.append(f"--{name} has no effect: no GPUs are asked for")
        return None
    asked = amounts.size(name, values[name])
    if asked == 0:
        told.append(f"--{name}=0 sets no limit; the machine's memory is not set aside for it")
        return None
    return asked * times[name]
