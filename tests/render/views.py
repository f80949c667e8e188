"""What a report looks like in each format that people read."""

from gpucheck.render.blocks import Findings
from gpucheck.render.findings import worst_first
from gpucheck.render.formats import render, show
from gpucheck.render.subjects import copies, diagnosis, topology
from gpucheck.render.subjects import report as subject
from gpucheck.render.write.terminal import Terminal


def report_page(report):
    return render(report, "html")


def report_text(report, *, verbose=False):
    return show(subject.document(report), "text", verbose=verbose)


def bandwidth_page(report):
    return show(copies.document(report), "html")


def diagnosis_page(shown):
    return show(diagnosis.document(shown, everything=True), "html")


def diagnosis_markdown(shown, change=None):
    return show(diagnosis.document(shown, published=True), "markdown", change=change)


def lines_of(findings, gpus=(), *, verbose=False, each_pass=False):
    """The lines of findings on a terminal, with colors."""
    return list(Terminal(verbose=verbose).findings(Findings(worst_first(findings, gpus), each_pass)))


def topology_page(made, about=""):
    return show(topology.document(made, about=about, whole=True), "html")


def topology_text(made, about=""):
    return show(topology.document(made, about=about), "text")


def matrix(made, width=None):
    """The lines of a matrix for a terminal of this width, with colors."""
    parts = Terminal(width=width).blocks(topology.matrix(made, width))
    return "\n\n".join(map("\n".join, parts)).split("\n")
