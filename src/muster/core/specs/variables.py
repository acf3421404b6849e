"""The variables of a kernel's environment that Muster sets, and those of them that a spec may set
otherwise."""

from collections.abc import Iterator, Mapping, Sequence

from muster.core.specs.deployment import DeploymentSpec
from muster.core.specs.job import JobSpec
from muster.core.specs.session import Process, SessionSpec, SessionType

DEVICES = "CUDA_VISIBLE_DEVICES"
DEVICE_ORDER = "CUDA_DEVICE_ORDER"
PORT = "PORT"
OF_GANGS = frozenset(
    {
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
    }
)
"""The variables of a gang's kernels, besides Muster's own."""

TORCHRUN_RANK = "PET_NODE_RANK"

_THREADS = "OMP_NUM_THREADS"
_AFTER_OMP = (
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Variables of libraries that go by ``OMP_NUM_THREADS`` where their own is not set."""
_BY_THEMSELVES = ("NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS")


def amounts(process: Process) -> Mapping[str, str]:
    """The variables by which a program learns what its kernel asked for: processors as written
    ("4", "0.5"), the number of GPUs that it sees, and bytes of memory where it asked for some."""
    resources = process.resources.resources()
    told = {
        "MUSTER_CPUS": f"{resources.cpu_milli / 1000:g}",
        "MUSTER_GPUS": str(resources.gpu_devices),
    }
    if resources.memory_bytes:
        told["MUSTER_MEMORY_BYTES"] = str(resources.memory_bytes)
    return told


def threads(process: Process, programs: int = 1) -> Mapping[str, str]:
    """The variables by which libraries for numbers begin as many threads as the spec asks for
    processors, of which a part counts as none: else each begins one for each processor of the
    machine. There are none where the spec asks for no number, and none that it sets itself, or
    that follow one that it sets.

    Args:
        programs: how many programs the kernel's command begins, which share the processors.
    """
    cpu_milli = process.resources.cpu
    if cpu_milli is None:
        return {}
    names = [*_BY_THEMSELVES]
    if _THREADS not in process.env:
        names += [_THREADS, *_AFTER_OMP]
    number = str(max(1, cpu_milli // 1000 // programs))
    return {name: number for name in names if name not in process.env}


def torchrun(process: Process, kernels: int, endpoint: str) -> Mapping[str, str]:
    """The defaults of torchrun's options for a kernel of a gang, in which each kernel is what
    torchrun calls a node: it begins a program for each GPU that the kernel sees, and all of them
    meet where the gang meets. Those that the spec sets stay.

    Args:
        kernels: the number of the gang's kernels.
        endpoint: host and port of the first of them.
    """
    told = {"PET_NNODES": str(kernels), "PET_RDZV_ENDPOINT": endpoint}
    if gpus := process.resources.resources().gpu_devices:
        told["PET_NPROC_PER_NODE"] = str(gpus)
    return {name: value for name, value in told.items() if name not in process.env}


def unused(spec: JobSpec | SessionSpec | DeploymentSpec) -> Sequence[str]:
    """The names of variables that a spec sets in vain, because its kernels get Muster's values."""
    found: dict[str, None] = {}
    for process, gang, serves in _processes(spec):
        taken = {DEVICES}
        if process.resources.gpu:
            taken.add(DEVICE_ORDER)
        if gang:
            taken |= OF_GANGS
        if serves:
            taken.add(PORT)
        found |= dict.fromkeys(name for name in process.env if name in taken)
    return list(found)


def _processes(
    spec: JobSpec | SessionSpec | DeploymentSpec,
) -> Iterator[tuple[Process, bool, bool]]:
    """The processes of a spec; whether each is one of a gang, and whether it is told the port of
    its requests."""
    match spec:
        case JobSpec():
            yield spec, spec.coscheduled, False
        case DeploymentSpec():
            yield spec, False, True
        case SessionSpec():
            gang = sum(kernel.replicas for kernel in spec.kernels) > 1
            serves = spec.type is SessionType.INFERENCE
            for kernel in spec.kernels:
                yield kernel, gang, serves and (kernel.port is not None or kernel.ports > 0)
