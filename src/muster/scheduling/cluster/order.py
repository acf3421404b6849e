"""Agents in the order of a built-in selector, kept current, so that a scan finds the best.

An order agrees with the selector's scores, and finds the winner without computing the score of each
candidate. (The order of waiting work is in ``passes.class_order``.)
"""

from array import array
from bisect import bisect_left
from collections.abc import Container
from enum import Enum
from typing import Protocol

import numpy as np

from muster.scheduling.cluster.columns import Columns, Flags, Ints, Need
from muster.scheduling.cluster.packing import MARKS, PLAIN, WANTED, Words

MAX_SLOTS = 1 << 20
_SLOT = MAX_SLOTS - 1
_SIZE_AT, _STEPS_AT = 20, 40  # the first bits of size and utilisation in a key, after the slot
_LARGEST_SIZE = 1_000_000  # in millionths
_MOST_STEPS = (1 << 22) - 1  # of utilisation; an agent with a higher one has no room

_BLOCK = 256  # keys that fit in a block
_FILLED = 192  # keys in a new block
_SPARE = 32  # blocks that may be added before all blocks are made anew
_WINDOW = 64  # slots among which the next one is looked for first
_VAIN = 4  # blocks that are scanned one by one before the rest is scanned together
_FEW = 24  # slots up to which each is looked at by itself
_FEW_IN_ALL = 8  # slots up to which words and keys are not worth keeping current
_OFTEN = 64  # questions about a tier before it gets a mark
_LONG = 4096  # questions after which a mark that was not used may be given to another tier


class Ranking(Enum):
    """An order of agents that says the same as the scores of a built-in selector.

    FULLEST: by falling utilisation; among equals the smaller agent first. EMPTIEST: by rising
    utilisation; among equals the larger first. ROUND_ROBIN: by slot, beginning after the last slot
    that was given something. Remaining ties go by slot.
    """

    FULLEST = "fullest"
    EMPTIEST = "emptiest"
    ROUND_ROBIN = "round_robin"


class Tier:
    """Slots that are equally good by the facts of their agents.

    Args:
        mask: the slots; None if all.
        allowed: the same mask, for looking up single slots.
        few: the slots as a list, if they are few.
        lookups: the number of look-ups in the tier, by which it may get a mark.
    """

    __slots__ = ("allowed", "few", "lookups", "mask")

    def __init__(self, mask: Flags | None = None) -> None:
        self.mask = mask
        self.lookups = 0
        self.allowed: bytes | None = None
        self.few: list[int] | None = None
        if mask is not None:
            self.allowed = mask.tobytes()
            if np.count_nonzero(mask) <= _FEW:
                self.few = np.flatnonzero(mask).tolist()


class SlotOrder(Protocol):
    """The slots of columns from the best to the worst."""

    def first(
        self, need: Need, tier: Tier, full: Container[int], next_slot: int, *, plain: bool
    ) -> int | None:
        """The best slot that has room; None if none has.

        Args:
            tier: the slots that may be used.
            full: slots that may not be used.
            next_slot: where ROUND_ROBIN begins.
            plain: whether only agents without devices may be used.
        """

    def best(self, slots: Ints, count: int, next_slot: int) -> Ints:
        """The best of ``slots``, at most ``count``, from the best on."""

    def keys(self, slots: Ints, steps: Ints) -> Ints:
        """The sort keys of ``slots``, if their utilisation were ``steps``; not for ROUND_ROBIN."""


def order_of(columns: Columns, ranking: Ranking) -> SlotOrder:
    """The Order of the columns' slots by a ranking."""
    return _RoundRobin(columns) if ranking is Ranking.ROUND_ROBIN else _Ranks(columns, ranking)


class _Scan:
    """Words of slots side by side, among which a scan finds slots that may have room.

    Tiers that are asked for often have a mark in the words, so that a scan takes them into account
    at no cost.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._mark = -1  # the mark of the columns' changes that are included
        self._version = -1  # of the agents' capacities
        self._words: Words = np.zeros(0, np.uint64)
        self._scratch: Words = self._words
        self._request: Words = np.zeros((), np.uint64)  # numpy is fastest with arrays
        self._wanted: Words = np.zeros((), np.uint64)
        self._marks = array("B")  # by slot
        self._marked: dict[Tier, int] = {}
        self._used: dict[Tier, int] = {}  # when a mark was last used, the longest ago first
        self._questions = 0

    def first(
        self, need: Need, tier: Tier, full: Container[int], next_slot: int, *, plain: bool
    ) -> int | None:
        columns = self._columns
        are_few = columns.slots <= _FEW_IN_ALL
        if not are_few:
            self._refresh()
        if tier.few is not None or are_few:
            may = [
                slot
                for slot in (range(columns.slots) if tier.few is None else tier.few)
                if (tier.allowed is None or tier.allowed[slot])
                and slot not in full
                and columns.has_room(slot, need)
                and not (plain and columns.agent(slot).machine.device_milli)
            ]
            if len(may) < 2:
                return may[0] if may else None
            return self._best_of(may, next_slot)
        wanted = WANTED | PLAIN if plain else WANTED
        allowed = None
        if tier.mask is not None:
            mark = self._mark_of(tier)
            if mark:
                wanted |= mark
            else:
                allowed = tier.allowed
        self._request[()] = need.word
        self._wanted[()] = wanted
        return self._scan(need, wanted, allowed, full, next_slot)

    def _find(
        self,
        start: int,
        stop: int,
        need: Need,
        wanted: int,
        allowed: bytes | None,
        full: Container[int],
    ) -> int | None:
        """The first slot with room whose word lies from ``start`` to before ``stop``."""
        if start >= stop:
            return None
        has_room = self._columns.has_room
        scratch = self._scratch[start:stop]
        np.subtract(self._words[start:stop], self._request, scratch)
        np.bitwise_and(scratch, self._wanted, scratch)
        at = int(scratch.argmax())  # nothing is greater than the wanted word
        while scratch.item(at) == wanted:
            slot = self._slot_at(start + at)
            if (allowed is None or allowed[slot]) and slot not in full and has_room(slot, need):
                return slot
            at += 1
            if at == scratch.size:
                break
            near = at + int(scratch[at : at + _WINDOW].argmax())
            if scratch.item(near) != wanted:
                near = at + int(scratch[at:].argmax())
            at = near
        return None

    # Differences between kinds of orders

    def _scan(
        self, need: Need, wanted: int, allowed: bytes | None, full: Container[int], next_slot: int
    ) -> int | None:
        raise NotImplementedError

    def _best_of(self, slots: list[int], next_slot: int) -> int:
        raise NotImplementedError

    def _slot_at(self, position: int) -> int:
        raise NotImplementedError

    def _place(self, slot: int) -> None:
        """Put the slot where it belongs now."""
        raise NotImplementedError

    def _lay(self, words: Words) -> None:
        """Put all slots where they belong now, with their ``words``."""
        raise NotImplementedError

    # Keeping current

    def _refresh(self) -> None:
        """Take in all changes of the columns."""
        columns = self._columns
        mark = columns.changes_mark
        if self._version != columns.capacity_version:
            self._version = columns.capacity_version
            self._marked.clear()
            self._used.clear()
            self._marks = array("B", bytes(columns.slots))
            self._rebuild()
        elif mark != self._mark:
            changed = columns.changed_since(self._mark)
            if changed is None or len(changed) > 16 + columns.slots // 256:
                self._rebuild()
            elif len(changed) == 1:
                self._place(changed[0])
            else:
                for slot in set(changed):
                    self._place(slot)
        self._mark = mark

    def _rebuild(self) -> None:
        words = self._columns.words()
        words |= np.frombuffer(self._marks, np.uint8)
        self._lay(words)
        self._scratch = np.empty_like(self._words)

    def _mark_of(self, tier: Tier) -> int:
        """The bit that the words of a tier's slots have; 0 if it has none."""
        self._questions += 1
        used = self._used
        if used.pop(tier, None) is None:
            tier.lookups += 1
            if tier.lookups < _OFTEN or not self._give_mark(tier):
                return 0
        used[tier] = self._questions
        return self._marked[tier]

    def _give_mark(self, tier: Tier) -> bool:
        """Mark the words of a tier's slots, if there is a bit for it."""
        marked, used = self._marked, self._used
        if len(marked) < MARKS:
            bit = next(1 << at for at in range(MARKS) if 1 << at not in marked.values())
        else:
            other, last = next(iter(used.items()))
            if self._questions - last < _LONG:
                return False
            del used[other]
            bit = marked.pop(other)
        assert tier.mask is not None, "all slots need no mark"
        marks = np.frombuffer(self._marks, np.uint8)
        marks &= np.uint8(255 - bit)
        marks |= tier.mask * np.uint8(bit)
        marked[tier] = bit
        self._rebuild()
        return True


class _RoundRobin(_Scan):
    """The Order for ROUND_ROBIN: words by slot."""

    def best(self, slots: Ints, count: int, next_slot: int) -> Ints:
        return np.roll(slots, -int(np.searchsorted(slots, next_slot)))[:count]

    def keys(self, slots: Ints, steps: Ints) -> Ints:
        return slots

    def _scan(
        self, need: Need, wanted: int, allowed: bytes | None, full: Container[int], next_slot: int
    ) -> int | None:
        count = self._words.size
        next_slot = next_slot if next_slot < count else 0
        near = min(next_slot + _BLOCK, count)
        for start, stop in ((next_slot, near), (near, count), (0, next_slot)):
            slot = self._find(start, stop, need, wanted, allowed, full)
            if slot is not None:
                return slot
        return None

    def _best_of(self, slots: list[int], next_slot: int) -> int:
        return min(slots, key=lambda slot: (slot < next_slot, slot))

    def _slot_at(self, position: int) -> int:
        return position

    def _place(self, slot: int) -> None:
        _, word = self._columns.measure(slot)
        self._words[slot] = word | self._marks[slot]

    def _lay(self, words: Words) -> None:
        self._words = words


class _Ranks(_Scan):
    """The Order for FULLEST and EMPTIEST.

    Keys sort as the slots rank; their lowest bits are the slot. Keys lie sorted in blocks, each for
    a range of values, so that a change moves few other keys. Words lie in the same places: the
    words of block b from b · ``_BLOCK`` on, with zeros behind the last. ``_tops`` has for each
    block the bits of all its words, and perhaps more: where these bits do not suffice for a
    request, no word of the block does.
    """

    def __init__(self, columns: Columns, ranking: Ranking) -> None:
        super().__init__(columns)
        self._fullest = ranking is Ranking.FULLEST
        self._blocks: list[array[int]] = []
        self._ends = array("q")  # no key of a block is greater than this
        self._key_of = array("q")
        self._measured = -1
        self._sizes: Ints = np.zeros(0, np.int64)  # in millionths
        self._size_of = array("q")
        self._tops = array("Q")
        self._tops_view: Words = self._words
        self._top_scratch: Words = self._words

    def best(self, slots: Ints, count: int, next_slot: int) -> Ints:
        keys = self.keys(slots, self._columns.all_steps()[slots])
        if count < keys.size:
            keys = np.partition(keys, count)[:count]
        keys.sort()
        return keys & _SLOT

    def keys(self, slots: Ints, steps: Ints) -> Ints:
        self._measure()
        steps, sizes = np.minimum(steps, _MOST_STEPS), self._sizes[slots]
        if self._fullest:
            steps = _MOST_STEPS - steps
        else:
            sizes = _LARGEST_SIZE - sizes
        return (steps << _STEPS_AT) | (sizes << _SIZE_AT) | slots

    def _key(self, slot: int, steps: int) -> int:
        steps, size = min(steps, _MOST_STEPS), self._size_of[slot]
        if self._fullest:
            return _MOST_STEPS - steps << _STEPS_AT | size << _SIZE_AT | slot
        return steps << _STEPS_AT | _LARGEST_SIZE - size << _SIZE_AT | slot

    def _measure(self) -> None:
        """Compute the agents' sizes."""
        if self._measured != self._columns.capacity_version:
            self._measured = self._columns.capacity_version
            self._sizes = np.floor(self._columns.size * 1e6 + 0.5).astype(np.int64)
            self._size_of = array("q", self._sizes.tobytes())

    def _scan(
        self, need: Need, wanted: int, allowed: bytes | None, full: Container[int], next_slot: int
    ) -> int | None:
        may = self._top_scratch
        np.subtract(self._tops_view, self._request, may)
        np.bitwise_and(may, self._wanted, may)
        for _ in range(_VAIN):
            index = int(may.argmax())
            if may.item(index) != wanted:
                return None
            start = index * _BLOCK
            slot = self._find(start, start + _BLOCK, need, wanted, allowed, full)
            if slot is not None:
                return slot
            self._measure_top(index)
            may[index] = 0
        end = len(self._blocks) * _BLOCK
        return self._find(start + _BLOCK, end, need, wanted, allowed, full)

    def _measure_top(self, index: int) -> None:
        start = index * _BLOCK
        self._tops[index] = int(np.bitwise_or.reduce(self._words[start : start + _BLOCK]))

    def _best_of(self, slots: list[int], next_slot: int) -> int:
        if self._columns.slots > _FEW_IN_ALL:
            return min(slots, key=self._key_of.__getitem__)
        self._measure()
        return min(slots, key=lambda slot: self._key(slot, self._columns.measure(slot)[0]))

    def _slot_at(self, position: int) -> int:
        block, at = divmod(position, _BLOCK)
        return self._blocks[block][at] & _SLOT

    def _lay(self, words: Words) -> None:
        assert words.size <= MAX_SLOTS, "the slot does not fit in a key"
        keys = self.keys(np.arange(words.size), self._columns.all_steps())
        self._key_of = array("q", keys.tobytes())
        keys.sort()
        words = words[keys & _SLOT]
        starts = range(0, len(keys), _FILLED)
        self._blocks = [array("q", keys[at : at + _FILLED].tobytes()) for at in starts]
        self._ends = array("q", [block[-1] for block in self._blocks])
        if self._ends:
            self._ends[-1] = (1 << 63) - 1
        laid = np.zeros((len(starts) + _SPARE, _BLOCK), np.uint64)
        for block, start in enumerate(starts):
            part = words[start : start + _FILLED]
            laid[block, : part.size] = part
        self._words = laid.reshape(-1)
        self._tops = array("Q", np.bitwise_or.reduce(laid, axis=1).tobytes())
        self._tops_view = np.frombuffer(self._tops, np.uint64)
        self._top_scratch = np.empty_like(self._tops_view)

    def _place(self, slot: int) -> None:
        steps, word = self._columns.measure(slot)
        word |= self._marks[slot]
        before, key = self._key_of[slot], self._key(slot, steps)
        index = bisect_left(self._ends, before)
        block = self._blocks[index]
        at = bisect_left(block, before)
        words, start = self._words, index * _BLOCK
        if key == before:
            words[start + at] = word
            self._tops[index] |= word
            return
        end = start + len(block)
        words[start + at : end - 1] = words[start + at + 1 : end]
        words[end - 1] = 0
        del block[at]
        self._key_of[slot] = key
        index = bisect_left(self._ends, key)
        if len(self._blocks[index]) == _BLOCK:
            if not self._split(index):
                self._rebuild()
                return
            index = bisect_left(self._ends, key)
        block, start = self._blocks[index], index * _BLOCK
        at = bisect_left(block, key)
        end = start + len(block)
        block.insert(at, key)
        words[start + at + 1 : end + 1] = words[start + at : end]
        words[start + at] = word
        self._tops[index] |= word

    def _split(self, index: int) -> bool:
        """Split a full block in two, if there is space for one more."""
        blocks, words, half = self._blocks, self._words, _BLOCK // 2
        start, end = index * _BLOCK, len(blocks) * _BLOCK
        if end == words.size:
            return False
        words[start + _BLOCK : end + _BLOCK] = words[start:end]
        words[start + half : start + _BLOCK] = 0
        words[start + _BLOCK : start + 2 * _BLOCK - half] = words[
            start + _BLOCK + half : start + 2 * _BLOCK
        ]
        words[start + 2 * _BLOCK - half : start + 2 * _BLOCK] = 0
        blocks.insert(index + 1, blocks[index][half:])
        del blocks[index][half:]
        self._ends.insert(index, blocks[index][-1])
        self._tops_view[index + 1 :] = self._tops_view[index:-1]
        self._measure_top(index)
        self._measure_top(index + 1)
        return True
