"""Components of the distribution's own archive that a plan needs, against the package sources that the host has.

The host's sources name its archive (often a local mirror), so the plan has no address: a managed file
names the same places again with the components they lack.
"""

import glob
import os
import re

from .readers.files import text

MANAGED_FILE = "/etc/apt/sources.list.d/gpucheck-archive.sources"
# A repository without suites has no components either: "deb URL /".
ONE_LINE = re.compile(r"(deb|deb-src)\s+(?:\[([^\]]*)\]\s*)?(\S+)(?:\s+(\S+)\s*(.*))?")
OFF = ("0", "no", "false", "off")
# Options of a one-line source whose name is another one in a .sources file; the others differ in case alone.
FIELDS = {"arch": "architectures", "lang": "languages", "target": "targets"}
COPIED = ("signed-by", "architectures", "trusted", "check-valid-until", "check-date", "allow-insecure", "by-hash")
NAMES = {"debian": re.compile(r"debian[^/]*$"), "ubuntu": re.compile(r"ubuntu[^/]*$")}


def one_line_sources(content):
    for line in content.splitlines():
        match = ONE_LINE.match(line.split("#")[0].strip())
        if match:
            kind, options, address, suite, components = match.groups("")
            pairs = (word.partition("=") for word in options.split())
            fields = {FIELDS.get(name.lower(), name.lower()): value for name, _, value in pairs}
            yield dict(fields, types=kind, uris=address, suites=suite, components=components)


def deb822_sources(content):
    """The fields of every stanza of a .sources file, names in lower case; lines that go on keep their form."""
    for stanza in re.split(r"\n[ \t]*\n", content):
        fields, name = {}, None
        for line in stanza.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if line[0] in " \t" and name:
                fields[name] += "\n" + line
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if fields:
            yield fields


def disabled(fields):
    return fields.get("enabled", "yes").lower() in OFF


def sources(root="/"):
    """Return the host's active binary sources except managed ones: fields, one dict for each address and suite."""
    folder, found = os.path.join(root, "etc/apt"), []
    for path in [os.path.join(folder, "sources.list"), *sorted(glob.glob(folder + "/sources.list.d/*.list"))]:
        found += one_line_sources(text(path) or "")
    for path in sorted(glob.glob(folder + "/sources.list.d/*.sources")):
        if os.path.basename(path) != os.path.basename(MANAGED_FILE):
            found += deb822_sources(text(path) or "")
    active = []
    for fields in found:
        if "deb" not in fields.get("types", "").split() or disabled(fields):
            continue
        suites = fields.get("suites", "").split()
        for uri in fields.get("uris", "").split():
            active += [dict(fields, uri=uri.rstrip("/"), suite=suite) for suite in suites]
    return active


def is_archive(source, suite, distribution="debian"):
    """True for the distribution's own archive of this release or a mirror of it, its updates and security updates."""
    named = source["suite"] in (suite, suite + "-updates", suite + "-security", suite + "/updates")
    return named and "main" in source.get("components", "").split() and bool(NAMES[distribution].search(source["uri"]))


def wanted(plan, root="/"):
    """What our file has to hold: "" where the sources have every component already, None where no archive is named."""
    archive = plan["archive"]
    whose = archive.get("distribution", "debian")
    active = [source for source in sources(root) if is_archive(source, archive["suite"], whose)]
    if not active:
        return None
    offered = {}
    for source in sources(root):
        offered.setdefault((source["uri"], source["suite"]), set()).update(source.get("components", "").split())
    stanzas = []
    for source in active:
        lacking = [name for name in archive["components"] if name not in offered[source["uri"], source["suite"]]]
        lines = ["Types: deb", "URIs: " + source["uri"], "Suites: " + source["suite"]]
        lines += ["Components: " + " ".join(lacking)]
        lines += [f"{name.title()}: {source[name]}" for name in COPIED if name in source]
        if lacking and "\n".join(lines) not in stanzas:
            stanzas.append("\n".join(lines))
    return "\n\n".join(stanzas) + "\n" if stanzas else ""


def state(plan, root="/"):
    """{path, content, found, right} for the roles, None where the plan needs no component of the archive."""
    if not plan.get("archive"):
        return None
    content = wanted(plan, root)
    seen = text(os.path.join(root, MANAGED_FILE.lstrip("/")))
    right = content is not None and (seen or "") == content.strip()
    return {"path": MANAGED_FILE, "content": content or "", "found": content is not None, "right": right}


def differences(plan, root="/"):
    seen = state(plan, root)
    if seen is None or seen["right"]:
        return []
    names = ", ".join(plan["archive"]["components"])
    if not seen["found"]:
        suite = plan["archive"]["suite"]
        return [f"no package source of the host names the archive of {suite}, to which {names} would be added"]
    return [f"{MANAGED_FILE} is missing or different: {names} of the host's own archive"]


def paths(plan):
    return [MANAGED_FILE] if plan.get("archive") else []
