"""Stand-in packages: a .deb or an .rpm from an entry of the catalogue."""

import shutil

from programs import BUILD, WORK, run

MAINTAINER = "gpucheck lab (stand-in packages, SIMULATED) <lab@localhost>"
DEB_RELATIONS = {"depends": "Depends", "provides": "Provides", "conflicts": "Conflicts"}
RPM_RELATIONS = {"depends": "Requires", "provides": "Provides", "conflicts": "Conflicts"}


def stage(package, root):
    """Lay out a package's files below root. Returns the absolute paths that belong to the package."""
    words = {"@VERSION@": package["version"], "@SHORT@": ".".join(package["version"].split(".")[:2])}
    paths = []

    def place(path, mode, text=None, source=None):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source is not None:
            shutil.copy(source, target)
        else:
            for word, value in words.items():
                text = text.replace(word, value)
            target.write_text(text)
        target.chmod(int(mode, 8))
        paths.append(path)

    for path, file in package["files"].items():
        text = file["text"] if file.get("text") is not None else (BUILD / "payload" / file["payload"]).read_text()
        place(path, file.get("mode", "0644"), text=text)
    links = dict(package["links"])
    branch = package["version"].split(".")[0]
    libraries = {"nvml": WORK / branch / "libnvidia-ml.so", "cuda": WORK / "libcuda.so"}
    for key, built in libraries.items():
        if package[key]:
            library = f"{built.name}.{package['version']}"
            place(f"{package[key]}/{library}", "0755", source=built)
            links[f"{package[key]}/{built.name}.1"] = library
    for path, target in links.items():
        link = root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        paths.append(path)
    # So that no package is empty, and each is marked as simulated.
    place(f"/usr/share/doc/{package['name']}/SIMULATED", "0644", text="A stand-in package of the gpucheck lab.\n")
    return paths


def build_deb(package, folder, number):
    """Write one .deb into folder."""
    root = WORK / f"deb-{number}"
    stage(package, root)
    control = root / "DEBIAN"
    control.mkdir()
    version = f"{package['version']}-{package['revision']}"
    if package["epoch"] is not None:
        version = f"{package['epoch']}:{version}"
    fields = [
        f"Package: {package['name']}",
        f"Version: {version}",
        "Architecture: amd64",
        f"Maintainer: {MAINTAINER}",
        "Section: misc",
        "Priority: optional",
        *(f"{title}: {', '.join(package[name])}" for name, title in DEB_RELATIONS.items() if package[name]),
        # Files of a package of another branch are replaced, and that package is removed.
        *([f"Replaces: {', '.join(package['conflicts'])}"] if package["conflicts"] else []),
        f"Description: {package['summary']}\n A stand-in package of the gpucheck lab. SIMULATED.",
    ]
    (control / "control").write_text("\n".join(fields) + "\n")
    scripts = {"postinst": (package["on_install"], "configure"), "prerm": (package["on_remove"], "remove")}
    for name, (text, when) in scripts.items():
        text = with_service(package, text, name == "postinst")
        if text:
            (control / name).write_text(f'#!/bin/sh\nset -e\nif [ "$1" = {when} ]; then\n{text}\nfi\n')
            (control / name).chmod(0o755)
    folder.mkdir(parents=True, exist_ok=True)
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", root, folder)
    shutil.rmtree(root)


def with_service(package, text, installing):
    """A package script's text with what its systemd unit needs, where systemd runs."""
    unit = package["service"]
    if not unit:
        return text
    words = "daemon-reload" if installing else f"disable --now {unit}.service"
    return "\n".join(filter(None, [text, f"if [ -d /run/systemd/system ]; then systemctl {words}; fi"]))


def build_rpm(package, folder, number):
    """Write one .rpm into folder, not yet signed."""
    root = WORK / f"rpm-{number}"
    paths = stage(package, root / "files")
    relations = [f"{title}: {item}" for name, title in RPM_RELATIONS.items() for item in package[name]]
    post = with_service(package, package["on_install"], True)
    preun = with_service(package, package["on_remove"], False)
    if post:
        # A script may need what it requires before this package's turn comes.
        relations += [f"Requires(post): {item}" for item in package["depends"]]
    spec = [
        f"Name: {package['name']}",
        f"Version: {package['version']}",
        f"Release: {package['revision']}",
        *([f"Epoch: {package['epoch']}"] if package["epoch"] is not None else []),
        f"Summary: {package['summary']}",
        "License: stand-in",
        "AutoReqProv: no",
        *relations,
        "%description",
        "A stand-in package of the gpucheck lab. SIMULATED.",
        "%install",
        f"mkdir -p %{{buildroot}}\ncp -a {root / 'files'}/. %{{buildroot}}/",
        *(["%post", post] if post else []),
        *(["%preun", 'if [ "$1" -eq 0 ]; then', preun, "fi"] if preun else []),
        "%files",
        *paths,
    ]
    (root / "package.spec").write_text("\n".join(spec) + "\n")
    definitions = {
        "_topdir": root,
        "_rpmdir": folder,
        "_rpmfilename": "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
        "__os_install_post": "%{nil}",
        "debug_package": "%{nil}",
        "_build_id_links": "none",
        "_binary_payload": "w1.gzdio",
    }
    defines = [word for name, value in definitions.items() for word in ("--define", f"{name} {value}")]
    folder.mkdir(parents=True, exist_ok=True)
    run("rpmbuild", "--quiet", "-bb", "--target", "x86_64", *defines, root / "package.spec")
    shutil.rmtree(root)
