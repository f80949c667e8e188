"""The complete comparison of a host with a plan: differences as text by role, and what the roles act on."""

import os

from . import (
    adopt,
    archive,
    boot,
    engines,
    host_plan,
    kernel,
    kernel_packages,
    options,
    package_repository,
    place,
    rdma,
    record,
    running,
    safety,
    tuning,
)
from .host import image, platform_python, read_facts
from .readers.files import text

ROLE_OF = {"fabric_manager": "driver"}


def compare(host, plan, digest, known=None):
    """Return the complete comparison as a dict; see plan_state. Raises Unreadable, ValueError for an invalid plan.

    known: a recent result of read_facts, to save reading it twice.
    """
    if plan.get("schema") != "gpucheck.plan/1":
        raise ValueError("schema {!r}, expected gpucheck.plan/1".format(plan.get("schema")))
    facts, extras = known or read_facts(host)
    packages = extras["packages"]
    replaced, rivals = adopt.found(plan["repositories"])
    sources = package_repository.differences(plan, extras["keys"]) + archive.differences(plan)
    sources += adopt.differences(replaced)
    differences = {"repository": sources, "driver": []}
    components = {}
    for name in host_plan.PACKAGE_COMPONENTS:
        words = host_plan.package_differences(plan, name, packages)
        held = host_plan.hold_differences(plan, name, packages, facts["holds"], extras["locks"])
        came = host_plan.along_holds(plan, name, packages, facts["holds"], extras["locks"])
        components[name] = {"packages": words, "missing": held[1] + came[1], "stale": held[2] + came[2]}
        differences.setdefault(ROLE_OF.get(name, name), []).extend(words + held[0] + came[0])
    for name in options.planned(plan):
        differences[name] += options.differences(plan, name)
    differences["driver"] += host_plan.driver_differences(plan, facts, packages)
    differences["driver"] += kernel_packages.modules_differences(plan, facts, packages)
    # Where packages are missing, it follows from them.
    installed = host_plan.component(plan, "driver")[0] and not components["driver"]["packages"]
    lost = bool(installed) and running.library_lost()
    if lost:
        differences["driver"].append(f"{running.LIBRARY} is installed, but the loader does not find it")
    modules = [] if image() else rdma.missing_modules(plan, extras["modules"], facts["kernel"])
    parts, lacking = rdma.kernel_parts(plan, facts, extras, host_plan.later_kernels(facts))
    differences["driver"] += rdma.differences(modules) + rdma.package_differences(parts)
    services = running.states([row["name"] for row in plan["services"]])
    differences["driver"] += running.differences(plan, services) + stream_differences(plan)
    differences["container_engine"] = engines.differences(plan)
    differences["tuning"] = tuning.differences(plan)
    noted = kernel.noted()
    lock = kernel.state(plan, facts["holds"], extras, noted)
    differences["kernel_lock"] = kernel.differences(lock, noted)
    arguments = boot.state(plan)
    differences["kernel_arguments"] = boot.differences(arguments)
    differences["gpucheck"] = host_plan.gpucheck_differences(plan, digest)
    differences["cleanup"] = record.differences(plan, packages) + engines.left(plan)
    details = host_details(plan, digest, facts, extras)
    if details["drained_gpus"]:
        differences["drain"] = ["an earlier run drained the host, and did not return it to service"]
    if extras["unfinished"]:
        differences["driver"].insert(0, "a package transaction was interrupted: " + ", ".join(extras["unfinished"]))
    if host_plan.keeps_driver(plan):
        # What is left of the driver's role: files that keep your own driver as it is.
        differences["cuda"] += host_plan.file_differences(plan["files"])
        differences["driver"] = []
        details["refusals"] += record.own_driver(packages)
    details["refusals"] += lacking
    return {
        "differences": {role: words for role, words in differences.items() if words},
        "components": components,
        "reboot": host_plan.reboot_reasons(plan, facts) + boot.reboot_reasons(arguments),
        "host": dict(
            details,
            modules_packages=sorted(parts),
            kernel_lock=lock,
            kernel_arguments=arguments,
            rivals=rivals,
            services=running.details(services),
            modules_missing=modules,
            library_lost=lost,
        ),
    }


def changes(plan, answer):
    """Return the plan's files as observed and as planned, for --diff; other differences are sentences."""
    host = answer["host"]
    wrong = host["wrong_files"] + host["tuning"]["wrong_files"] + host["options"]["wrong_files"]
    added = [row for row in [host["archive"]] if row and not row["right"]]
    rows = plan["files"] + tuning.wanted(plan)["files"] + options.rows(plan, "files")
    return [place.change(row["path"], row["content"]) for row in rows + added if row in added or row["path"] in wrong]


def stream_differences(plan):
    wanted = plan["module_stream"]
    seen = host_plan.enabled_stream(wanted["module"]) if wanted else None
    if not wanted or seen == wanted["stream"]:
        return []
    return [f"module {wanted['module']} has stream {seen or 'none'} enabled, planned {wanted['stream']}"]


def foreign(plan, facts, extras):
    """Return driver packages from elsewhere. A plan with the distribution's archive expects the distribution's."""
    wanted = extras.get("of_distribution", []) if plan.get("archive") else []
    return [words for words in facts["foreign"] if words not in wanted]


def host_details(plan, digest, facts, extras):
    stream = plan["module_stream"]
    return {
        "driver": facts["driver"],
        "kernel": facts["kernel"],
        "kernels": facts["kernels"],
        "secure_boot": facts["secure_boot"],
        "mok": safety.mok_state(plan, facts["secure_boot"]),
        "python3": facts["python3"],
        "platform_python": platform_python(),
        "headers_present": facts["kernel"] in facts["headers"],
        "headers_missing": kernel_packages.headers_missing(plan, facts, extras["packages"])
        + kernel_packages.modules_missing(plan, facts, extras["packages"]),
        "kernel_modules": {
            "wanted": kernel_packages.modules_wanted(plan, facts, extras["packages"]),
            "installed": kernel_packages.modules_installed(plan, extras["packages"]),
        },
        "kernels_without_module": host_plan.kernels_without_module(plan, facts),
        # No difference: a mirror of your own may have what these packages bring, such as dkms.
        "prerequisites_missing": host_plan.absent(plan, "prerequisites", extras["packages"]),
        "compilers_missing": host_plan.absent(plan, "compilers", extras["packages"]),
        "strays": host_plan.strays(plan, extras["packages"]),
        "busy": facts["processes"],
        "foreign": foreign(plan, facts, extras),
        "mixed": extras.get("of_nvidia", []) if plan.get("kernel_modules") else [],
        "managed": extras.get("managed", []),
        "archive": archive.state(plan),
        "tuning": tuning.state(plan),
        "options": {"wrong_files": host_plan.wrong(options.rows(plan, "files"))},
        "refusals": options.refusals(plan, extras["packages"]) + boot.refusals(plan) + engines.refusals(plan),
        "space": safety.file_systems(),
        "unfinished": extras["unfinished"],
        "cut_off": os.path.exists(record.TRANSACTION),
        "drained_gpus": text(record.DRAINED) or "",
        "unplanned": record.unplanned(plan, extras["packages"], facts["holds"]),
        "superfluous": host_plan.superfluous(plan, extras["doubled"]),
        "module_stream": host_plan.enabled_stream(stream["module"]) if stream else None,
        "module_stream_planned": not stream_differences(plan),
        "requirements_current": bool(digest) and text(host_plan.MARKER) == digest,
        "versionlock": host_plan.versionlock_available(),
        "wrong_files": host_plan.wrong(plan["files"]),
        # Those that the initramfs carries a copy of.
        "wrong_initramfs_files": host_plan.wrong(row for row in plan["files"] if row["initramfs"]),
        "module_planned": (facts["driver"]["installed_version"], facts["driver"]["installed_flavour"])
        == (plan["expected"]["driver_version"], plan["expected"]["kernel_module"]),
        "build_again": host_plan.build_again(plan, facts["kernel"]),
        **dict(zip(("rebuild_initramfs", "initramfs_images"), host_plan.initramfs(extras["family"]))),
        "initramfs_pending": os.path.exists(host_plan.INITRAMFS_PENDING),
        "bundle_there": os.path.lexists(host_plan.BUNDLE_PLACE),
    }
