"""The letters that every match of a regular expression holds, so that most lines are never searched."""

import re

# One element of a pattern: an escape, a class, a group's bracket, a count, or a character.
ELEMENT = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:P<\w+>|[:=!]|<[=!]))?|\)|[*+?]\??|\{[\d,]+\}\??|.", re.DOTALL
)
ESCAPED = re.compile(r"\\[^A-Za-z0-9]")


SHORTEST = 3


def needed_texts(pattern: str) -> tuple[str, ...]:
    """Texts of which every match of the pattern holds one: one for each alternative; empty where one has none."""
    found, start, depth, end = [], 0, 0, 0
    for element in ELEMENT.findall(pattern):
        depth += element.startswith("(") - (element == ")")
        if depth == 0 and element == "|":
            found.append(needed_text(pattern[start:end]))
            start = end + 1
        end += len(element)
    found.append(needed_text(pattern[start:]))
    return tuple(found) if all(len(text) >= SHORTEST for text in found) else ()


def needed_text(pattern: str) -> str:
    """Return the longest text that every match of the pattern contains; empty without one.

    Groups are not searched, and a pattern with alternatives outside of groups has none.
    """
    runs, run, depth = [""], "", 0
    for element in ELEMENT.findall(pattern):
        if element.startswith("("):
            depth += 1
        elif element == ")":
            depth -= 1
        elif depth == 0 and element == "|":
            return ""
        elif depth == 0 and element[0] in "*?{" and len(run):
            runs.append(run[:-1])
            run = ""
            continue
        elif depth == 0 and (ESCAPED.fullmatch(element) or (len(element) == 1 and element not in "^$.+*?{")):
            run += element[-1]
            continue
        runs.append(run)
        run = ""
    return max([*runs, run], key=len)
