"""Regular expressions that are compiled at first use: a text is of few kinds, and the others are not needed."""

import re
from typing import Any, cast


def regex(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return what re.compile returns, for use by its methods."""
    return cast("re.Pattern[str]", _Regex(pattern, flags))


class _Regex:
    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern, self.flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self.pattern, self.flags), name)
        setattr(self, name, found)  # from now on as fast as without this class
        return found
