"""Redaction of free text: identifiers by their shape, names by their place or as the host reports them."""

import re
from collections.abc import Callable, Iterable

from gpucheck.host.recording.redaction import _identifiers as identifiers
from gpucheck.host.recording.redaction._names import Names
from gpucheck.host.recording.redaction._pseudonyms import Pseudonyms
from gpucheck.host.recording.redaction._secrets import without_secrets

SHORTEST_SERIAL = 4


class TextRules:
    """The replacements for texts of one host."""

    def __init__(self, names: Pseudonyms, known: Names, *, uuids: Iterable[str] = (), serials: Iterable[str] = ()):
        """known: has learned from all texts, and learns no more. uuids, serials: of the GPUs."""
        self.names = names
        self.known = known
        self.uuids = frozenset(uuid.removeprefix("GPU-").lower() for uuid in uuids)
        reported = {one for one in serials if one.strip("0") and len(one) >= SHORTEST_SERIAL}
        longest = sorted(reported, key=lambda one: (-len(one), one))
        self.serials = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])") if longest else None
        known.freeze()

    def structured(self, text: str) -> str:
        """What is replaced: identifiers by their shape, paths and keywords; a host may be called "open"."""
        return self.names.changed(text, self._shapes)

    def text(self, text: str, *, addresses: bool = True) -> str:
        """Free text."""
        return self.names.changed(
            text, lambda it: self._free(without_secrets(it, self.names.secret), addresses=addresses)
        )

    def _shapes(self, text: str) -> str:
        text = self.known.keywords(text, self.names)
        text = identifiers.serials(text, self.names, self.serials)
        text = identifiers.by_shape(text, self.names, self.uuids)
        return identifiers.paths(text, self.names)

    def _free(self, text: str, *, addresses: bool) -> str:
        text = identifiers.mails(self.known.keywords(text, self.names), self.names)
        text = self.known.replaced(self._shapes(text), self.names)
        return identifiers.addresses(text, self.names) if addresses else text


def of_texts(
    hostname: str, texts: Iterable[str], *, users: Iterable[str] = (), uuids: Iterable[str] = ()
) -> Callable[[str], str]:
    """Return the redaction for texts about one host, such as the findings of a report.

    texts: everything that may name hosts and users. users: names of accounts that are known already. uuids: of GPUs.
    """
    known = Names(hostname)
    for text in texts:
        known.learn(text)
    known.users.update(users)
    return TextRules(Pseudonyms(), known, uuids=uuids).text
