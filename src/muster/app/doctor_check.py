"""One finding of `muster doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; ``ok`` is None where it is worth knowing, and neither good nor bad."""

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""
