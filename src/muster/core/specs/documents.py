"""YAML and JSON as a person writes them."""

from typing import Any

from muster.core.errors import InvalidSpec, Problem

MAX_SPEC_BYTES = 1024 * 1024

_SHOWN = {type(None): "empty", str: "text", list: "a list"}
"""Words for a document that has no keys and values, by its type."""


def load_keys(text: str, *, aliases: bool = True) -> dict[Any, Any]:
    """The keys and values of one document of YAML or JSON, not validated yet.

    Raises:
        InvalidSpec: as ``load_documents``; or there is more than one document.
    """
    documents = load_documents(text, aliases=aliases)
    if len(documents) > 1:
        raise InvalidSpec([Problem("spec", f"{len(documents)} documents", "expected one a file")])
    return documents[0]


def load_documents(text: str, *, aliases: bool = True) -> list[dict[Any, Any]]:
    """The documents of YAML or JSON, separated by ``---``, not validated yet; at least one.

    Args:
        aliases: whether YAML aliases are allowed; only where the text is its reader's own, because
            they can make it very large.

    Raises:
        InvalidSpec: not readable, too large or too deep, a key that stands twice, a tag, or no
            keys at all.
    """
    if len(text.encode(errors="replace")) > MAX_SPEC_BYTES:
        raise InvalidSpec([Problem("spec", "", f"expected at most {MAX_SPEC_BYTES} bytes")])
    # Imported late: PyYAML takes a MiB, and most programs that know specs read none from a text.
    from muster.core.specs.yaml_reader import read

    documents = read(text, aliases=aliases)
    for data in documents or [None]:
        if not isinstance(data, dict):
            shown = _SHOWN.get(type(data), "a single value")
            expected = "expected keys and values, such as command: …"
            raise InvalidSpec([Problem("spec", shown, expected)])
    return documents
