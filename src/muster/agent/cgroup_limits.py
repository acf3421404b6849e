"""The limits of the agent's own cgroups: an agent in a container offers the capacity of the
container, and not of the machine."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def cpu_milli(root: Path = ROOT, membership: Path = MEMBERSHIP) -> Iterator[int]:
    """The processor quotas of this process's cgroups, in thousandths of a processor."""
    for directory in _directories("cpu", root, membership):
        match _words(directory / "cpu.max"):
            case [quota_us, period_us] if quota_us != "max":
                yield max(1, 1000 * int(quota_us) // int(period_us))
        match _words(directory / "cpu.cfs_quota_us"), _words(directory / "cpu.cfs_period_us"):
            case [quota_us], [period_us] if int(quota_us) > 0:
                yield max(1, 1000 * int(quota_us) // int(period_us))


def memory_bytes(root: Path = ROOT, membership: Path = MEMBERSHIP) -> Iterator[int]:
    """The memory limits of this process's cgroups, in bytes."""
    for directory in _directories("memory", root, membership):
        for name in ("memory.max", "memory.limit_in_bytes"):
            match _words(directory / name):
                case [limit_bytes] if limit_bytes != "max":
                    yield int(limit_bytes)


def _directories(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """The cgroup in which this process is for a controller, and the cgroups above it."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _number, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        # In a container the path may be the host's; the mounted hierarchy is then the container's
        # own.
        inside = base / path.lstrip("/")
        yield base
        while inside != base:
            yield inside
            inside = inside.parent


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
