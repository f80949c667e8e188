"""Groups that pairs connect: GPUs below one switch, or those that NVLink joins."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

Member = TypeVar("Member", bound=Hashable)


def islands(members: Iterable[Member], joined: Iterable[tuple[Member, Member]]) -> list[frozenset[Member]]:
    """Return the groups that these pairs connect, in the order of their first member; every member is in one."""
    group = {member: frozenset([member]) for member in members}
    for one, other in joined:
        whole = group[one] | group[other]
        group.update(dict.fromkeys(whole, whole))
    return list(dict.fromkeys(group.values()))
