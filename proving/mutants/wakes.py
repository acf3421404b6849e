"""Deliberate bugs about wakes that were not stored, or of which nobody knows whether they were, and
about the news that outlive a wake."""

from proving.mutants.mutant import Mutant

NOTICE = "control/notice"

WAKES = (
    Mutant(
        "a wake of which nobody knows whether it was stored counts as stored",
        "control/plane.py",
        "        if was_stored:\n",
        "        if was_stored or True:\n",
        "nothing leaves before it is committed",
        scenario="commit_that_was_not",
    ),
    Mutant(
        "one half of the inputs is dropped when one of them makes a wake fail",
        "control/inbox.py",
        "        self.give_back(inputs[middle:])\n",
        "",
        "an input is taken, or its sender is told that it is not",
        scenario="poison_beside_others",
    ),
    Mutant(
        "a notice that nobody answers is not sent again",
        f"{NOTICE}/lifecycle.py",
        "            elif work.now >= notice.handed_at + ANSWER_S:\n",
        "            elif False:\n",
        "whoever asked is told of the end of work",
    ),
    Mutant(
        "notices that wait are forgotten by the next controller",
        f"{NOTICE}/turns.py",
        "            if notice.status is NoticeStatus.PENDING:\n",
        "            if False:\n",
        "whoever asked is told of the end of work",
        scenario="notices_over_a_restart",
    ),
)
