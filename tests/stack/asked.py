"""The resolver asked with a short specification: its set, or its first conflict."""

from gpucheck.stack import Refusal, StackSet, resolve, wants


def answer(gpus, os, *want, **more) -> StackSet:
    """The set; fails the test if it was refused."""
    found = resolve(gpus, os, spec=wants(want), **more)
    assert isinstance(found, StackSet), found
    return found


def refusal(gpus, os, *want, **more):
    """The first conflict; fails the test if a set was found."""
    found = resolve(gpus, os, spec=wants(want), **more)
    assert isinstance(found, Refusal), found
    return found.conflicts[0]
