"""Dated tables with their sources, about GPUs, drivers, links and failures, and a loader.

Every table is parsed once per process, on first use. A damaged table raises KnowledgeError, which names the file and
the line. Unconfirmed values are marked in the tables and never silently relied on.
"""

from gpucheck.knowledge._load import KnowledgeError, site_tables
from gpucheck.knowledge.causes import Cause, RootCauses, causes, root_causes
from gpucheck.knowledge.gpus import (
    GpuC2c,
    GpuModel,
    code_runs,
    find_gpu,
    generation_of,
    gpu_by_pci_id,
    gpu_table,
    gpus,
    gpus_of_family,
    similar_gpus,
)
from gpucheck.knowledge.links import NvLinkRate, healthy_rates, nvlink_factor, nvlink_rate, pcie_gb_s
