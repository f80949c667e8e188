"""JSON of reports: the published contracts, indented for readers."""

import msgspec

from gpucheck.printable import for_terminal


def to_json(report: object) -> str:
    """Return a struct or a mapping as indented JSON, without redaction. Strings are as they were once it is read.

    What a terminal or an editor would act on, or not show, is escaped: a file may be printed with other programs.
    """
    text = msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
    # Of ASCII, JSON leaves nothing but this one unescaped.
    return text if text.isascii() and "\x7f" not in text else for_terminal(text)
