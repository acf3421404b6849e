"""Completion for bash, which ends a word at each colon and at each equals sign."""

from typing import Any

from click.shell_completion import BashComplete, CompletionItem, add_completion_class

_BREAKS = (":", "=")


class WholeWordsComplete(BashComplete):
    """Click's completion for bash, with the words whole that bash divides. What it offers begins
    after the last break at which bash divided the typed word, because bash puts it there."""

    _typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        divided, last = super().get_completion_args()
        words: list[str] = []
        for word in (*divided, last):
            if words and (word.startswith(_BREAKS) or words[-1].endswith(_BREAKS)):
                words[-1] += word
            else:
                words.append(word)
        *args, incomplete = words
        option, _, value = incomplete.partition("=")
        word = value if option.startswith("-") else incomplete
        replaced = 0 if last in _BREAKS else len(last)
        self._typed = word[: max(len(word) - replaced, 0)]
        return args, incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return f"{item.type},{str(item.value).removeprefix(self._typed)}"


def register() -> None:
    """Have click complete so for bash."""
    add_completion_class(WholeWordsComplete)
