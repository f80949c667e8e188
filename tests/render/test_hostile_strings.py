"""Every view of every kind of report, with hostile text in every string that gpucheck does not choose itself."""

import importlib
import inspect
import pkgutil
import re
import typing
from functools import wraps

import pytest

from gpucheck import render
from gpucheck.model.bandwidth import BandwidthReport, SizePoint
from gpucheck.model.finding import Finding
from gpucheck.model.smoke import SmokeReport
from gpucheck.printable import printable
from gpucheck.render import formats
from gpucheck.render.machine import junit
from gpucheck.render.subjects.smoke import ShownRun
from tests.render.hostile import EVIL, FORGED, RAW, hostile, raw
from tests.render.reports import INTEGRITY

IMAGE = {
    "schema": "gpucheck.image/1",
    "simulated": True,
    "image": {"variant": EVIL, "base": EVIL, "python": EVIL, "stand_in_base": False},
    "purpose": EVIL,
    "findings": [hostile(Finding)],
    "verdict": hostile(Finding).verdict,
    "counts": {"fail": 1},
    "seconds": 1.0,
}
# Arguments of the builders that take more, or something else, than a struct of the model.
OTHERS = {
    "image": (IMAGE,),
    "smoke": (hostile(SmokeReport), [ShownRun(EVIL, (EVIL,), (hostile(Finding),))]),
}
# No text: the values as they are.
NO_TEXT = {"to_json"}
SHOWN = ("text", "html", "markdown")


def modules():
    for found in pkgutil.walk_packages(render.__path__, "gpucheck.render."):
        yield found.name.removeprefix("gpucheck.render."), importlib.import_module(found.name)


def views():
    """(module, function) of every view that is text, and every builder in each format."""
    for short, module in modules():
        for name, view in vars(module).items():
            if inspect.unwrap(view).__module__ != module.__name__ if callable(view) else True:
                continue
            if re.match("(fleet_)?to_", name) and name not in NO_TEXT:
                yield pytest.param(short, view, id=f"{short}.{name}")
            elif name == "document" and short.startswith("subjects."):
                for form in SHOWN:
                    yield pytest.param(short.removeprefix("subjects."), shown(view, form), id=f"{short}.{form}")


def shown(build, form):
    @wraps(build)
    def view(*values, **options):
        made = build(*values, **options)._replace(recorded=printable(EVIL))
        return formats.show(made, form, verbose=True)

    return view


def arguments(module, view):
    """Hostile arguments of a view, from the type of its first one."""
    parameters = inspect.signature(view).parameters
    options = {name: EVIL for name in ("about",) if name in parameters}
    options |= {name: {} for name in ("labels",) if name in parameters}
    options |= {name: True for name in ("verbose", "everything", "whole") if name in parameters}
    if module in OTHERS:
        return OTHERS[module], options
    hints = typing.get_type_hints(inspect.unwrap(view))
    report = hostile(hints[next(iter(parameters))])
    if isinstance(report, BandwidthReport):
        points = tuple(hostile(SizePoint, size_bytes=size) for size in (1 << 20, 1 << 24))
        report = hostile(BandwidthReport, integrity=INTEGRITY, sizes=points)
    return (report,), options


@pytest.mark.parametrize(("module", "view"), list(views()))
def test_no_view_prints_foreign_text_raw(module, view):
    """No control, direction or invisible character, and no line that a host wrote."""
    values, options = arguments(module, view)
    text = view(*values, **options)

    assert raw(text) == []
    # The reasons of Slurm have no character but those of their grammar.
    assert r"\u202e" in text or "prometheus" in module or view.__name__ == "to_slurm"


def test_fix_of_several_steps_keeps_a_line_a_step():
    """Each behind spaces, in text, JUnit and HTML."""
    from tests.render.reports import finding, report

    steps = report(finding(fix="unload the module\nPASS  99 hosts\nload it", why="a\nb", evidence=("c\nd",)))

    for form in ("text", "junit", "html"):
        lines = formats.render(steps, form).split("\n")
        assert not [line for line in lines if line.startswith(FORGED)], form
        assert [line for line in lines if line.strip().startswith(FORGED)], form


def test_case_whose_detail_is_no_finding_is_printable():
    """The JUnit writer also gets cases that no struct made."""
    case = junit.Case(EVIL, EVIL, hostile(Finding).verdict, EVIL, EVIL)

    assert RAW.findall(junit.write("x", [junit.suite(EVIL, [case], "warn", EVIL, {EVIL: EVIL})])) == []
