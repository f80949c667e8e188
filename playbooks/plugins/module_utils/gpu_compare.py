"""The whole answer about a host and a plan: differences in words by role, and what the roles act on.

Runs on the managed host: standard library only, Python 3.6 or newer. Nothing here changes anything.
"""

import os

from ansible.module_utils import (
    gpu_archive,
    gpu_boot,
    gpu_engines,
    gpu_kernel,
    gpu_loader,
    gpu_options,
    gpu_plan,
    gpu_rdma,
    gpu_record,
    gpu_repository,
    gpu_services,
    gpu_tuning,
)
from ansible.module_utils.gpu_files import text
from ansible.module_utils.gpu_host import read_facts

ROLE_OF = {"fabric_manager": "driver"}


def compare(host, plan, digest, known=None):
    """The whole answer as a dict; see plan_state. Raises Unreadable, ValueError for a plan that is no plan.

    known: what read_facts said a moment ago, to save reading it twice.
    """
    if plan.get("schema") != "gpucheck.plan/1":
        raise ValueError("schema {!r} where gpucheck.plan/1 is wanted".format(plan.get("schema")))
    facts, beside = known or read_facts(host)
    packages = beside["packages"]
    sources = gpu_repository.differences(plan, beside["keys"]) + gpu_archive.differences(plan)
    differences = {"repository": sources, "driver": []}
    components = {}
    for name in gpu_plan.PACKAGE_COMPONENTS:
        words = gpu_plan.package_differences(plan, name, packages)
        held = gpu_plan.hold_differences(plan, name, packages, facts["holds"], beside["locks"])
        components[name] = {"packages": words, "missing": held[1], "stale": held[2]}
        differences.setdefault(ROLE_OF.get(name, name), []).extend(words + held[0])
    for name in gpu_options.planned(plan):
        differences[name] += gpu_options.differences(plan, name, facts["kernel"])
    differences["driver"] += gpu_plan.driver_differences(plan, facts, packages)
    # Without the packages it is no wonder.
    lost = bool(gpu_plan.component(plan, "driver")[0]) and not components["driver"]["packages"] and gpu_loader.lost()
    differences["driver"] += ["{} is installed, and not found by programs".format(gpu_loader.LIBRARY)] if lost else []
    modules = gpu_rdma.missing_modules(plan, beside["modules"], facts["kernel"])
    differences["driver"] += gpu_rdma.differences(modules)
    services = gpu_services.states([row["name"] for row in plan["services"]])
    differences["driver"] += gpu_services.differences(plan, services) + stream_differences(plan)
    differences["container_engine"] = gpu_engines.differences(plan)
    differences["tuning"] = gpu_tuning.differences(plan)
    differences["kernel_lock"] = kernel_differences(plan, facts, beside)
    boot = gpu_boot.state(plan)
    differences["kernel_arguments"] = gpu_boot.differences(boot)
    differences["gpucheck"] = gpu_plan.gpucheck_differences(plan, digest)
    differences["cleanup"] = gpu_record.differences(plan, packages) + gpu_engines.left(plan)
    if beside["unfinished"]:
        names = ", ".join(beside["unfinished"])
        differences["driver"].insert(0, "a package transaction was cut off, unfinished: {}".format(names))
    return {
        "differences": {role: words for role, words in differences.items() if words},
        "components": components,
        "reboot": gpu_plan.reboot_reasons(plan, facts) + gpu_boot.reboot_reasons(boot),
        "host": dict(
            host_details(plan, digest, facts, beside),
            services=gpu_services.details(services),
            modules_missing=modules,
            library_lost=lost,
        ),
    }


def changes(plan, answer):
    """The plan's files as they are and as they are planned, for --diff; what else differs is said in sentences."""
    found = []
    host = answer["host"]
    wrong = host["wrong_files"] + host["tuning"]["wrong_files"] + host["options"]["wrong_files"]
    archive = host["archive"]
    added = [archive] if archive and not archive["right"] else []
    for row in plan["files"] + gpu_tuning.wanted(plan)["files"] + gpu_options.rows(plan, "files") + added:
        if row in added or row["path"] in wrong:
            now = text(row["path"])
            header = {"before_header": row["path"], "after_header": row["path"]}
            found.append(dict(header, before="" if now is None else now + "\n", after=row["content"]))
    return found


def kernel_differences(plan, facts, beside):
    """The holds of the kernel packages against the plan."""
    ours = gpu_kernel.noted()
    return gpu_kernel.differences(gpu_kernel.state(plan, facts["holds"], beside, ours), ours)


def stream_differences(plan):
    """The dnf module stream that is enabled against the planned one."""
    wanted = plan["module_stream"]
    if wanted is None:
        return []
    seen = gpu_plan.enabled_stream(wanted["module"])
    if seen == wanted["stream"]:
        return []
    return ["module {} has stream {} enabled, planned {}".format(wanted["module"], seen or "none", wanted["stream"])]


def host_details(plan, digest, facts, beside):
    """What roles act on besides sentences."""
    stream = plan["module_stream"]
    recorded = gpu_plan.recorded_plan()
    return {
        "driver": facts["driver"],
        "kernel": facts["kernel"],
        "kernels": facts["kernels"],
        "nouveau_loaded": facts["nouveau_loaded"],
        "secure_boot": facts["secure_boot"],
        "python3": facts["python3"],
        "headers_present": facts["kernel"] in facts["headers"],
        "headers_missing": gpu_plan.headers_missing(plan, facts, beside["packages"]),
        "kernels_without_module": gpu_plan.kernels_without_module(plan, facts),
        "prerequisites_missing": gpu_plan.prerequisites_missing(plan, beside["packages"]),
        "compilers_missing": gpu_plan.compilers_missing(plan, beside["packages"]),
        "strays": gpu_plan.strays(plan, beside["packages"]),
        "busy": facts["processes"],
        "foreign": facts["foreign"],
        "rivals": gpu_repository.rivals(plan),
        "archive": gpu_archive.state(plan),
        "tuning": gpu_tuning.state(plan),
        "options": gpu_options.state(plan, facts["kernel"]),
        "refusals": gpu_options.refusals(plan, beside["packages"])
        + gpu_boot.refusals(plan)
        + gpu_engines.refusals(plan),
        "free_bytes": facts["free_bytes"],
        "unfinished": beside["unfinished"],
        "unplanned": gpu_record.unplanned(plan, beside["packages"], facts["holds"]),
        "superfluous": gpu_plan.superfluous(plan, beside["doubled"]),
        "module_stream": gpu_plan.enabled_stream(stream["module"]) if stream else None,
        "module_stream_planned": not stream_differences(plan),
        "plan_current": recorded == plan,
        "requirements_current": bool(digest) and text(gpu_plan.MARKER) == digest,
        "versionlock": gpu_plan.versionlock_available(),
        "wrong_files": gpu_plan.wrong_files(plan),
        "wrong_initramfs_files": gpu_plan.initramfs_files(plan),
        "module_planned": (facts["driver"]["installed_version"], facts["driver"]["installed_flavour"])
        == (plan["expected"]["driver_version"], plan["expected"]["kernel_module"]),
        "build_again": gpu_plan.build_again(plan),
        "rebuild_initramfs": gpu_plan.initramfs(beside["family"])[0],
        "initramfs_pending": os.path.exists(gpu_plan.INITRAMFS_PENDING),
        "bundle_there": os.path.lexists(gpu_plan.BUNDLE_PLACE),
    }
