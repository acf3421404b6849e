"""Channels that hang: one user's, however many there are, hold up nobody."""

import time

from tests.attacks.target import Target
from tests.control.notice.receiver import receiving
from tests.patience import until

from muster.control.notice.turns import MAX_SENDING_OF_ONE

JOBS = 40


def test_channels_of_one_user_that_hang_delay_no_notice_of_another(target: Target) -> None:
    with receiving() as receiver:
        drips = [f"http://{receiver.host}/drip?rto=600&of={n}" for n in range(8)]
        with target.client("mallory") as mallory, target.client("ada") as ada:
            for _ in range(JOBS):
                mallory.submit(command=["true"], notify=drips)
            until(lambda: len(receiver.got) >= MAX_SENDING_OF_ONE, timeout_s=60.0)
            for _ in range(3):
                began_s = time.monotonic()
                assert ada.try_channel(f"http://{receiver.host}/mine").status == "SENT"
                assert time.monotonic() - began_s < 5.0, "less than an attempt that hangs"
        hanging = [path for path, _ in receiver.got if path.startswith("/drip")]
        assert len(hanging) <= 2 * MAX_SENDING_OF_ONE, "the others wait for their turn"
