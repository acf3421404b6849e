"""The answers of sound machines to services: of those of tests, whose health nobody hides."""

from muster.core.health.service import Service, ServiceName, dump
from muster.core.health.verdict import verdict_of


def result_of(service: Service | None, told: str | None) -> str | None:
    """The text that a service leaves which ends by itself.

    Args:
        told: by the kernel's course; None is what a healthy machine leaves.
    """
    if service is None:
        return None
    return dump(verdict_of(service.name.value)) if told is None else told


def has_it_reboot(service: Service | None, exit_code: int) -> bool:
    """Whether the machine goes down once this service has ended with this code."""
    return service is not None and service.name is ServiceName.REBOOT and exit_code == 0
