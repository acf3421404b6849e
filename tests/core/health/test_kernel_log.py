"""Xids in records of the kernel's log."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.health.kernel_log import (
    MAX_DETAIL,
    ErrorKind,
    KernelRecord,
    LogPosition,
    XidEvent,
    device_at,
    is_news,
    parse_error,
    parse_record,
    parse_xid,
    pci_address,
)


def event_in(text: str) -> XidEvent | None:
    return parse_xid(KernelRecord(7, 12.5, text))


def test_record_of_the_kernel_is_read() -> None:
    line = b"4,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    assert parse_record(line) == KernelRecord(
        1234, 5.678901, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    )
    newer = b"4,1234,5678901,-,caller=T42;NVRM: x"
    assert parse_record(newer) == KernelRecord(1234, 5.678901, "NVRM: x")


def test_records_of_an_h200_whose_program_wrote_to_a_bad_address_hold_one_xid() -> None:
    """The driver 580.159.04 wrote these three lines for one fault."""
    lines = (
        b"4,358,182342010,c;NVRM: GPU at PCI:0000:00:06: "
        b"GPU-5daf6fd8-d190-9d2c-53eb-a84ecee28cf5\n",
        b"4,359,182342022,c;NVRM: GPU Board Serial Number: 1652826071187\n",
        b"4,360,182342024,c;NVRM: Xid (PCI:0000:00:06): 31, pid=1084, name=python3, channel "
        b"0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ "
        b"0xbf61_5fe00000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE\n",
    )
    records = [parse_record(line) for line in lines]
    events = [parse_xid(record) for record in records if record is not None]
    assert events[:2] == [None, None]
    event = events[2]
    assert event is not None
    assert (event.address, event.number) == ("0000:00:06", 31)
    assert (event.pid, event.program, event.sequence) == (1084, "python3", 360)


@pytest.mark.parametrize(
    "line",
    [
        b"12,5,6,-;NVRM: Xid (PCI:0000:3b:00): 79, a process wrote this",  # facility 1
        b" SUBSYSTEM=pci",
        b"",
        b"4,5,6,-",
        b"NVRM: Xid (PCI:0000:3b:00): 79",
        b"4,x,6,-;text",
    ],
)
def test_line_that_the_kernel_did_not_begin_itself_is_no_record(line: bytes) -> None:
    assert parse_record(line) is None


@pytest.mark.parametrize(
    ("text", "event"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
            XidEvent(
                "0000:3b:00",
                79,
                "pid=1234, name=python, GPU has fallen off the bus.",
                12.5,
                7,
                1234,
                "python",
            ),
        ),
        (
            "NVRM: Xid (0000:03:00): 14, Channel 00000001",
            XidEvent("0000:03:00", 14, "Channel 00000001", 12.5, 7),
        ),
        (
            "NVRM: Xid (PCI:0009:01:00): 31, pid='<unknown>', name=<unknown>, Ch 00000008",
            XidEvent("0009:01:00", 31, "pid='<unknown>', name=<unknown>, Ch 00000008", 12.5, 7),
        ),
        (
            "NVRM: Xid (PCI:0000:41:00 GPU-I:05 GPU-CI:00): 45, pid=9, name=a b, Ch 1",
            XidEvent("0000:41:00", 45, "pid=9, name=a b, Ch 1", 12.5, 7, 9, "a b", 5, 0),
        ),
        (
            "NVRM: Xid (PCI:0000:41:00 GPU-I:05): 94",
            XidEvent("0000:41:00", 94, "", 12.5, 7, gpu_instance=5),
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x0 0x1)",
            XidEvent("0018:01:00", 149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x0 0x1)", 12.5, 7),
        ),
        (
            "NVRM: Xid (PCI:10000:01:00): 154, GPU recovery action changed from 0x0 (None)"
            " to 0x2 (OS Reboot)",
            XidEvent(
                "10000:01:00",
                154,
                "GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)",
                12.5,
                7,
            ),
        ),
    ],
)
def test_every_form_of_the_drivers_line_is_read(text: str, event: XidEvent) -> None:
    assert event_in(text) == event


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
        "NVRM: Xid (PCI:66): 79",
        "NVRM: Xid (PCI:0000:66:00): 12345678901234567890",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 35",
        "NVRM: Xid",
        "",
        # Text that a process chose, in lines that the kernel wrote about it.
        "python3[77]: segfault at 0 ip 0 sp 0 error 4 in NVRM: Xid (PCI:0000:3b:00): 79[400000+1]",
        "tmpfs: Unknown parameter 'NVRM: Xid (PCI:0000:3b:00): 79'",
        "NVRM: Xid (PCI:[77]: segfault at 0 ip 0 sp 0 error 4 in NVRM: Xid (PCI:0000:3b:00): 79",
        "\\x0aNVRM: Xid (PCI:0000:3b:00): 79",
        " NVRM: Xid (PCI:0000:3b:00): 79",
    ],
)
def test_line_about_something_else_is_no_xid(text: str) -> None:
    assert event_in(text) is None


def test_drivers_words_are_kept_up_to_a_limit() -> None:
    event = event_in("NVRM: Xid (PCI:0000:3b:00): 31, " + "x" * 8000)
    assert event is not None
    assert len(event.detail) == MAX_DETAIL


@pytest.mark.parametrize(
    "text",
    ["0000:3b:00", "00000000:3B:00.0", "PCI:0000:3b:00", "3b:00", "3B:00.0", "PCI:0000:3B:00.0"],
)
def test_address_is_one_however_it_is_written(text: str) -> None:
    assert pci_address(text) == "0000:3b:00"


@pytest.mark.parametrize("text", ["", "3b", "0000:3b:00:00", "0000:3b:00.9", "g" * 10_000])
def test_text_that_is_no_address_has_none(text: str) -> None:
    assert pci_address(text) is None
    assert device_at(text, {0: "0000:3b:00"}) is None


def test_device_is_found_by_its_address() -> None:
    addresses = {0: "00000000:3B:00.0", 1: "00010000:3B:00.0"}
    assert device_at("0000:3b:00", addresses) == 0
    assert device_at("PCI:10000:3b:00", addresses) == 1
    assert device_at("0000:3c:00", addresses) is None


def test_record_is_news_once() -> None:
    record = KernelRecord(10, 100.0, "")
    assert is_news(record, "boot-a", None)
    assert is_news(record, "boot-a", LogPosition("boot-a", 9))
    assert not is_news(record, "boot-a", LogPosition("boot-a", 10))
    assert not is_news(record, "boot-a", LogPosition("boot-a", 11))


def test_numbers_begin_anew_with_a_boot() -> None:
    assert is_news(KernelRecord(3, 1.0, ""), "boot-b", LogPosition("boot-a", 900))


def test_record_from_before_the_boot_is_no_news() -> None:
    assert not is_news(KernelRecord(3, 99.0, ""), "boot-b", None, began_s=100.0)
    assert is_news(KernelRecord(3, 100.0, ""), "boot-b", None, began_s=100.0)


@given(st.sampled_from([b"", b"4,5,6,-;NVRM: Xid (", b"4,5,"]), st.binary(max_size=40))
def test_any_line_is_a_record_or_none(begin: bytes, line: bytes) -> None:
    record = parse_record(begin + line)
    if record is not None:
        parse_xid(record)


PLACES = st.sampled_from(["PCI:0000:3b:00", "0000:3B:00.0", "PCI:0000:41:00 GPU-I:05", "PCI:"])


@settings(max_examples=50)
@given(PLACES | st.text("0123456789abcdef:. GPUIC-", max_size=30), st.integers(0), st.text())
def test_any_line_of_the_driver_gives_a_bounded_event_or_none(
    place: str, number: int, words: str
) -> None:
    event = event_in(f"NVRM: Xid ({place}): {number}{words}")
    if event is not None:
        assert pci_address(event.address) == event.address
        assert len(event.detail) <= MAX_DETAIL


# Errors that are no Xids


def error_in(text: str) -> XidEvent | None:
    return parse_error(KernelRecord(7, 12.5, text))


FALLEN = XidEvent("0000:b3:00", 79, "GPU has fallen off the bus", 12.5, 7)


@pytest.mark.parametrize(
    "text",
    [
        # as the driver tells of a GPU that is gone when it starts: three lines in one record
        "NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:26b5) installed in this system "
        "has\\x0aNVRM: fallen off the bus and is not responding to commands.",
        "NVRM: The NVIDIA GPU 0000:B3:00.0 (PCI ID: 10de:1e07) installed in this\\x0aNVRM: system "
        "has fallen off the bus and is not responding to commands.",
        "NVRM: The NVIDIA GPU 0000:b3:00.0 installed in this system has fallen off the bus and is "
        "not responding to commands.",
        # beside an Xid 79, and of older drivers
        "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at 0000:b3:00.0 has fallen off the bus.",
    ],
)
def test_gpu_that_fell_off_the_bus_without_an_xid_counts_as_the_xid_of_that(text: str) -> None:
    assert error_in(text) == FALLEN


def test_record_of_several_lines_is_read_as_the_kernel_gives_it() -> None:
    line = (
        b"3,900,1843308145,-;NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:26b5) "
        b"installed in this system has\\x0aNVRM: fallen off the bus and is not responding to "
        b"commands.\n"
    )
    record = parse_record(line)
    assert record is not None
    assert parse_error(record) == XidEvent(
        "0000:b3:00", 79, "GPU has fallen off the bus", 1843.308145, 900
    )


def test_gpu_that_the_driver_could_not_start_is_told_with_the_drivers_numbers() -> None:
    event = error_in("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:894)")
    words = "RmInitAdapter failed (0x22:0x56:894)"
    assert event == XidEvent("0000:01:00", 0, words, 12.5, 7, kind=ErrorKind.NOT_STARTED)


@pytest.mark.parametrize(
    ("text", "switch", "number", "fatal", "detail"),
    [
        (
            "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
            1,
            20034,
            True,
            "Link 48 LTSSM Fault Up",
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 12028, Non-fatal, Link 32 egress "
            "non-posted PRIV error (First)",
            3,
            12028,
            False,
            "Link 32 egress non-posted PRIV error (First)",
        ),
    ],
)
def test_error_of_a_switch_is_told_with_its_words(
    text: str, switch: int, number: int, fatal: bool, detail: str
) -> None:
    assert error_in(text) == XidEvent(
        "0000:06:00",
        number,
        detail,
        12.5,
        7,
        kind=ErrorKind.SXID,
        switch=switch,
        fatal=fatal,
    )


@pytest.mark.parametrize(
    "text",
    [
        # only a line that begins as the driver writes it counts
        "python[77]: NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        "NVRM: GPU 0[12]: segfault at 0 ip 0: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        "x: nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
        "NVRM: GPU 0000:b3:00.0: GPU has fallen off the busy list",
        "NVRM: The NVIDIA GPU 0000:b3:00.0 is fine, its neighbour has fallen off the bus",
        # registers and instances of an SXid, which come beside the line that says how grave it is
        "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Severity 1 Engine instance 60 "
        "Sub-engine instance 00",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Data {0x10000000, 0x10000000}",
        "NVRM: RmInitAdapter: osInitNvMapping failed, bailing out of RmInitAdapter",
        "NVRM: GPU 0000:09:00.0: rm_init_adapter failed, device minor number 0",
    ],
)
def test_other_line_is_no_error(text: str) -> None:
    assert error_in(text) is None


@settings(max_examples=50)
@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text: str) -> None:
    error_in("NVRM: GPU " + text)
    error_in("NVRM: The NVIDIA GPU 0000:b3:00.0" + text)
    error_in("nvidia-nvswitch1: SXid (PCI:" + text)
