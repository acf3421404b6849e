"""Errors of GPUs in the kernel's log: records as /dev/kmsg gives them, and the driver's lines
(source: kmsg).

They are Xids; a GPU that is told to have fallen off the bus without one; a GPU that the driver
could not start (source: Open kernel modules); and SXids, which are errors of the switches between
GPUs (source: Fabric Manager User Guide). The fabric manager itself is a program, and writes nothing
there: what it finds the driver of the switches tells.

Only records that the kernel wrote itself count, and of these only the ones that begin as the
driver writes them. A process's own lines carry another facility. The kernel's lines about a
process, such as that of a segmentation fault, may hold text that the process chose, but never at
their beginning more than its name of 15 bytes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from muster.core.health.verdict import bounded

MAX_RECORD = 8192
"""Bytes of a record, at most."""
MAX_DETAIL = 300
"""Characters of an Xid's own words that are kept."""

_RECORD = re.compile(r"([0-9]{1,3}),([0-9]{1,20}),([0-9]{1,20}),")
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
    r"(?: GPU-I:([0-9]{1,3}))?(?: GPU-CI:([0-9]{1,3}))?\): ([0-9]{1,9})(?![0-9])"
)
_AT = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_NEXT = r"(?:\\x0aNVRM:)? "  # the kernel gives a line break of a record as these four characters
_FALLEN = (
    re.compile(rf"NVRM: GPU (?:at )?{_AT}:? (?:GPU )?has fallen off the bus(?![a-z])"),
    re.compile(
        rf"NVRM: The NVIDIA GPU {_AT}{_NEXT}"
        rf"(?:\(PCI ID: [0-9a-fA-F]{{4}}:[0-9a-fA-F]{{4}}\){_NEXT})?"
        rf"installed in this{_NEXT}system has{_NEXT}fallen off the bus(?![a-z])"
    ),
)
_NOT_STARTED = re.compile(rf"NVRM: GPU {_AT}: RmInitAdapter failed! \(([0-9a-fxA-F:]{{1,64}})\)")
_SXID = re.compile(
    rf"nvidia-nvswitch([0-9]{{1,3}}): SXid \({_AT}\): ([0-9]{{1,9}}), (Fatal|Non-fatal)(?![a-z])"
)
FALLEN_OFF_THE_BUS = 79
"""The Xid of a GPU that does not answer any more."""
_PID = re.compile(r"pid='?([0-9]{1,10})(?![0-9])")
_PROCESS_NAME = re.compile(r"name='?([^,']{1,64})")
_ADDRESS = re.compile(
    r"(?:PCI:)?(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?"
)
_LONGEST_ADDRESS = 32


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One record of the kernel's log.

    Args:
        sequence: its number, ascending within a boot.
        at_s: seconds since the boot.
    """

    sequence: int
    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The place in a kernel's log up to which it was read."""

    boot: str
    sequence: int


class ErrorKind(StrEnum):
    """The kinds of errors that the driver reports."""

    XID = "xid"  # of a GPU, with a number of NVIDIA's catalogue
    NOT_STARTED = "not started"  # a GPU that the driver could not start; its number is 0
    SXID = "sxid"  # of a switch between GPUs, with a number of the Fabric Manager User Guide


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An Xid that the driver reported, or another error.

    Args:
        address: of the GPU or the switch, as ``pci_address`` writes it.
        detail: the driver's words, of at most ``MAX_DETAIL`` characters.
        at_s: seconds since the boot.
        sequence: of its record.
        pid: of the process that used the GPU, where the driver tells it.
        program: that process's name.
        gpu_instance: of a partitioned GPU.
        compute_instance: of a partitioned GPU.
        switch: the number of the switch, of an SXid.
        fatal: whether the driver calls an SXid fatal.
    """

    address: str
    number: int
    detail: str
    at_s: float
    sequence: int = 0
    pid: int | None = None
    program: str = ""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    kind: ErrorKind = ErrorKind.XID
    switch: int | None = None
    fatal: bool = False


def parse_record(line: bytes) -> KernelRecord | None:
    """A record of /dev/kmsg without its continuation lines; None for anything else, and for a
    record that the kernel did not write itself."""
    header, separator, text = line[:MAX_RECORD].decode(errors="replace").partition(";")
    found = _RECORD.match(header)
    if found is None or not separator:
        return None
    facility = int(found[1]) >> 3
    if facility:
        return None
    return KernelRecord(int(found[2]), int(found[3]) / 1e6, text.rstrip("\n"))


def parse_error(record: KernelRecord) -> XidEvent | None:
    """The error of a GPU, or of a switch between GPUs, that a record reports; None for any other
    record."""
    for parse in (parse_xid, _fallen, _not_started, _sxid):
        found = parse(record)
        if found is not None:
            return found
    return None


def parse_xid(record: KernelRecord) -> XidEvent | None:
    """The Xid that a record reports; None if it reports none. The driver's lines begin with
    ``NVRM: Xid (PCI:0000:3b:00): 79, pid=..., name=..., words``; older and newer ones lack some of
    that, or name an instance of a partitioned GPU."""
    found = _XID.match(record.text)
    address = pci_address(found[1]) if found is not None else None
    if found is None or address is None:
        return None
    rest = record.text[found.end() : found.end() + 4 * MAX_DETAIL]
    detail = bounded(rest.removeprefix(",").strip(), MAX_DETAIL)
    pid, name = _PID.search(detail), _PROCESS_NAME.search(detail)
    program = name[1] if name is not None and not name[1].startswith("<") else ""
    return XidEvent(
        address,
        int(found[4]),
        detail,
        record.at_s,
        record.sequence,
        int(pid[1]) if pid is not None else None,
        program,
        int(found[2]) if found[2] else None,
        int(found[3]) if found[3] else None,
    )


def _fallen(record: KernelRecord) -> XidEvent | None:
    """The error of a GPU that does not answer any more, where the driver says so beside an Xid or
    without one. It counts as the Xid that says the same."""
    for pattern in _FALLEN:
        found = pattern.match(record.text)
        address = pci_address(found[1]) if found is not None else None
        if address is not None:
            words = "GPU has fallen off the bus"
            return XidEvent(address, FALLEN_OFF_THE_BUS, words, record.at_s, record.sequence)
    return None


def _not_started(record: KernelRecord) -> XidEvent | None:
    """The error of a GPU that the driver could not start, with the driver's three numbers."""
    found = _NOT_STARTED.match(record.text)
    address = pci_address(found[1]) if found is not None else None
    if found is None or address is None:
        return None
    words = f"RmInitAdapter failed ({found[2]})"
    kind = ErrorKind.NOT_STARTED
    return XidEvent(address, 0, words, record.at_s, record.sequence, kind=kind)


def _sxid(record: KernelRecord) -> XidEvent | None:
    """The error of a switch. It takes several lines, of which the one counts that says whether it
    is fatal; registers are told in the others."""
    found = _SXID.match(record.text)
    address = pci_address(found[2]) if found is not None else None
    if found is None or address is None:
        return None
    rest = record.text[found.end() : found.end() + 4 * MAX_DETAIL]
    return XidEvent(
        address,
        int(found[3]),
        bounded(rest.removeprefix(",").strip(), MAX_DETAIL),
        record.at_s,
        record.sequence,
        kind=ErrorKind.SXID,
        switch=int(found[1]),
        fatal=found[4] == "Fatal",
    )


def pci_address(text: str) -> str | None:
    """An address of PCI in one form, ``0000:3b:00``, whichever way it is written: with eight digits
    of domain as NVML does, in capitals, without a domain, with a function; None if it is none."""
    found = _ADDRESS.fullmatch(text) if len(text) <= _LONGEST_ADDRESS else None
    if found is None:
        return None
    domain = int(found[1], 16) if found[1] else 0
    return f"{domain:04x}:{found[2].lower()}:{found[3].lower()}"


def device_at(address: str, addresses: Mapping[int, str]) -> int | None:
    """The index of the GPU at an address; None if none is there.

    Args:
        addresses: of the GPUs by their indexes, in any form.
    """
    wanted = pci_address(address)
    if wanted is None:
        return None
    return next((index for index, at in addresses.items() if pci_address(at) == wanted), None)


def is_news(
    record: KernelRecord, boot: str, read: LogPosition | None, began_s: float = 0.0
) -> bool:
    """Whether a record was not read before, and is of the present boot.

    Args:
        boot: the id of the present boot, in which the record was found.
        read: the place up to which the log was read, be it in this boot or another.
        began_s: when the boot began on the clock of the records: later than 0 where several boots
            of a machine share one kernel.
    """
    if record.at_s < began_s:
        return False
    return read is None or read.boot != boot or record.sequence > read.sequence
