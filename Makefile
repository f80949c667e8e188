SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# gpucheck is started thousands of times by its tests: it is compiled once, not each time.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
LAB ?= gpucheck-lab
LAB_INVENTORY := .lab/$(LAB)/inventory.yml
# Without INVENTORY everything happens in the embedded lab: two hosts in containers.
INVENTORY ?=
HOSTS := $(or $(INVENTORY),$(LAB_INVENTORY))
REPORTS ?= reports
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# On a new machine unattended-upgrades has the lock for minutes, and by itself apt-get does not wait.
APT_GET := apt-get -qq -o DPkg::Lock::Timeout=600
# One test more than cores, as some wait; each process reads all test files first, which takes seconds.
PARALLEL = -n $(shell echo $$((1 + $$(nproc)))) --dist worksteal
# Simulated machines are trees of thousands of small files: they are made in memory where it has room and runs programs.
MEMORY := $(shell folder=/dev/shm; [ -w $$folder ] && [ "$$(df --output=avail $$folder | tail -n 1)" -gt 4000000 ] && \
  ! grep -q " $$folder [^ ]* [^ ]*noexec" /proc/mounts && echo $$folder)
PYTEST = env -u MAKEFLAGS $(if $(MEMORY),PYTEST_DEBUG_TEMPROOT=$(MEMORY)) $(VENV)/bin/pytest \
	$(if $(MEMORY),-o tmp_path_retention_policy=failed -o tmp_path_retention_count=1)
COMMA := ,
# The files with tests of make test-more. To read all others too takes each test process seconds.
SEARCHES = $(shell grep -rlE --include='test_*.py' 'mark\.more\b|import .*sampled' tests | sort)
# Tests for this machine as it is.
HERE = not lab and not gpu and not images and not real_packages and not more_labs and not more and not vm
# LIMIT=node07 or LIMIT=rack3: those hosts alone; the controller belongs to every run.
# BATCH=10, 10% or [1,10,50]: so many hosts at a time.
PLAYBOOK = ANSIBLE_CONFIG=playbooks/ansible.cfg $(VENV)/bin/ansible-playbook -i $(HOSTS) \
	-e reports_dir=$(abspath $(REPORTS)) $(if $(LIMIT),--limit '$(LIMIT)$(COMMA)localhost') \
	$(if $(BATCH),-e '{"batch": $(BATCH)}') $(ARGS)

# No file that a host sends for a bundle is larger: 8 GiB in blocks of 512 bytes.
LARGEST = 16777216
# BUNDLE=path: for make bundle the folder that it writes, for plan and provision the only source. GROUPS='rocky-*': those.
FROM_BUNDLE = $(if $(BUNDLE),-e bundle=$(abspath $(BUNDLE)) $(if $(BUNDLE_FINGERPRINT),-e bundle_fingerprint=$(BUNDLE_FINGERPRINT)))
TO_BUNDLE = -e bundle_output=$(abspath $(or $(BUNDLE),build/bundle)) $(if $(GROUPS),-e '{"bundle_groups": "$(GROUPS)"}') \
	$(if $(BUNDLE_KEY),-e bundle_key=$(BUNDLE_KEY))

.PHONY: help plan provision bundle image-plan image verify rollback deprovision slurm check lint test test-here test-lab test-more test-labs test-network test-controllers test-all test-real-packages test-gpu fuzz collection images test-images lab-down clean release

help: ## this list
	@echo "gpucheck: provision NVIDIA GPU hosts and verify that they are ready for multi-GPU training"
	@awk -F ': *.*## ' '/^[a-z][a-z-]*:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  LIMIT=hosts             plan, provision, verify: these hosts alone;  BATCH=10 (or 10%, or [1,10,50]) so many at a time"
	@echo "  INVENTORY=path          real hosts over SSH (group gpu) instead of the embedded lab; see playbooks/inventory/example"

plan: $(VENV)/.provision target ## show the plan of every group and what it would change on each host (read-only)
	@$(PLAYBOOK) $(FROM_BUNDLE) --check --diff playbooks/provision.yml

provision: $(VENV)/.provision target ## install driver, CUDA, cuDNN, NCCL and gpucheck on every GPU host, verify, print the merged report
	@$(PLAYBOOK) $(FROM_BUNDLE) playbooks/provision.yml

bundle: $(VENV)/.provision target bundle-tools ## everything that the plans install, as one signed directory for hosts without a network
	@ulimit -f $(LARGEST) && $(PLAYBOOK) $(TO_BUNDLE) playbooks/bundle.yml

rollback: $(VENV)/.provision target ## return every host to the set that was recorded on it before the present one
	@$(PLAYBOOK) playbooks/rollback.yml

deprovision: $(VENV)/.provision target ## remove everything installed by provision, and nothing else (CONFIRM=yes; without it, list it)
	@$(PLAYBOOK) $(if $(CONFIRM),-e confirm=$(CONFIRM)) playbooks/deprovision.yml

# HARDWARE=h100-sxm5-x8: eight of h100-sxm5.
image-plan: $(VENV)/.provision ## show the plan of an image without a GPU: HARDWARE=h100-sxm5-x8 OS=ubuntu-22.04 (KERNEL=release)
	@hardware=$(or $(HARDWARE),$(error HARDWARE=h100-sxm5-x8 and OS=ubuntu-22.04 are required)); $(VENV)/bin/gpucheck stack plan \
	  --gpu "$$(echo "$$hardware" | sed -E 's/^(.*)-x([0-9]+)$$/\2x\1/')" --os "$(OS)" --spec stack.yml $(if $(KERNEL),--kernel "$(KERNEL)")

image: $(VENV)/.provision ## install that plan into an image without a GPU (INVENTORY=playbooks/inventory/image.yml: into this very system)
	@$(if $(and $(INVENTORY),$(HARDWARE),$(OS)),,$(error INVENTORY=path, HARDWARE=h100-sxm5-x8 and OS=ubuntu-22.04 are required))
	@$(PLAYBOOK) -e image_hardware=$(HARDWARE) -e image_os=$(OS) playbooks/image.yml

verify: $(VENV)/.provision target ## verify every GPU host again and print the merged report
	@$(PLAYBOOK) playbooks/verify.yml

slurm: $(VENV)/.provision target ## wire gpucheck into Slurm on every node: health check, prolog, epilog, policy, gres.conf; checks slurm.conf and cgroup.conf
	@$(PLAYBOOK) playbooks/slurm.yml

ifdef INVENTORY
check: $(VENV)/.provision target
	@$(PLAYBOOK) playbooks/check.yml
else
check: lint ## lint, and the fast tests that need no Docker, no root and no GPU; with INVENTORY=: verify those hosts as they are
	@$(PYTEST) $(PARALLEL) -m "not slow and not browser and $(HERE)"
endif

# The lab waits for disks and package managers most of its time: everything else is checked meanwhile.
test: $(VENV)/.test tools bundle-tools ## what each change is tested with, all at once: lint, test-here, test-lab
	@echo "gpucheck: lint, tests and lab run at the same time, and each prints its output when it ends" >&2
	@$(MAKE) --jobs=3 --output-sync=target lint test-here test-lab

test-here: $(VENV)/.test tools ## this machine: real training, NVML clients, simulated machines, HTML pages in Chromium
	@$(PYTEST) $(PARALLEL) -m "$(HERE)"

test-lab: $(VENV)/.test ## the embedded lab from nothing to the merged report (needs root or sudo, and Docker)
	@env -u MAKEFLAGS $(VENV)/bin/pytest -m lab tests/lab

test-more: $(VENV)/.test tools ## large searches and rare paths: every fault on every machine, all hostile hosts and files, commands killed anywhere
	@$(PYTEST) $(PARALLEL) -m "more or figures" $(SEARCHES)

test-all: test test-more test-labs ## test, test-more, test-labs

test-labs: $(VENV)/.test bundle-tools ## more of the lab: air gap, tuning, bare metal, light hosts, faults, refused hosts, ansible-pull, nodes of a search under ssh and Slurm (root or sudo, and Docker)
	@$(VENV)/bin/pytest -m more_labs tests/lab tests/release tests/isolate

test-network: $(VENV)/.test ## network cards of a real kernel in a virtual machine (Debian, apt; installs qemu-system-x86)
	@if ! command -v qemu-system-x86_64 >/dev/null && command -v apt-get >/dev/null; then \
	  echo "gpucheck: installing qemu-system-x86, because tests boot a kernel with RDMA" >&2; \
	  $(SUDO) $(APT_GET) update && DEBIAN_FRONTEND=noninteractive $(SUDO) $(APT_GET) install --yes --no-install-recommends qemu-system-x86 >/dev/null; \
	fi
	@$(VENV)/bin/pytest -m vm tests/network

test-controllers: $(VENV)/.test bundle-tools ## every playbook with the oldest, the pinned and the newest ansible-core, on a light lab host
	@$(VENV)/bin/pytest -m more_labs tests/lab/test_controllers.py

# PYTHON=python3 on the command line: that Python and what is installed for it, without a network. Each file of tests is a
# process of its own, and nothing stops at a failure. RECORDING=path: of the archive, which is whole after each program.
OWN_PYTHON := $(filter command,$(origin PYTHON))
GPU_PYTHON = $(if $(OWN_PYTHON),$(PYTHON),$(VENV)/bin/python)
RECORDING ?= bench/results/gpu-recording-$(shell date +%F).json.gz
test-gpu: $(if $(OWN_PYTHON),,$(VENV)/.test) ## real GPUs: record --full (kept in bench/results), then all tests of copies, computing, training; PYTHON=python3 uses that Python as it is
	@failed=; $(GPU_PYTHON) -m gpucheck record --full --yes --within 1800 -o $(RECORDING) || failed=recording; \
	for file in tests/gpu/test_*.py; do \
	  GPUCHECK_RECORDING=$(abspath $(RECORDING)) timeout -k 5 300 $(GPU_PYTHON) -m pytest -m gpu -v -p no:cacheprovider $$file || failed="$$failed $$file"; \
	done; [ -z "$$failed" ] || { echo "gpucheck: failed: $$failed" >&2; exit 1; }

test-real-packages: $(VENV)/.test ## Debian's own driver packages on a Debian 12 lab host: DKMS compiles, NVML and nvcc are real (2 GB, 15 minutes)
	@$(VENV)/bin/pytest -m real_packages tests/lab/test_real_packages.py

# SECONDS=60. SEED=7 makes the same inputs again. TARGET=topology: all that start so.
fuzz: $(VENV)/.test ## hostile input for every reader: SECONDS=60, SEED=number, TARGET=name; failing inputs go to build/fuzz
	@$(VENV)/bin/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(if $(TARGET),--target $(TARGET))

collection: $(VENV)/.provision ## build/gpucheck-provision-*.tar.gz: the roles and modules for your own playbooks
	@PATH="$(abspath $(VENV))/bin:$$PATH" playbooks/collection/build build

# MACHINE=x86_64: packages for that one. URL=https://...: of the repository, for links on a package index. Every file has the date of the commit: the same commit gives the same bytes.
release: $(VENV)/.release ## build/release: wheels, sources, .deb, .rpm, collection, SBOM, checksums; KEY=... signs them with gpg
	@$(VENV)/bin/python -m release build/release $(if $(KEY),--key $(KEY)) $(if $(URL),--url $(URL)) $(if $(MACHINE),--machine $(MACHINE))

images: $(VENV)/.provision ## build the container images (IMAGE=torch-cpu for one)
	@$(VENV)/bin/gpucheck image build $(IMAGE)

test-images: $(VENV)/.test ## build and test images in containers (IMAGE=...; default: the CPU variants); GPUS=1: on this machine's GPUs too
	@$(if $(IMAGE),GPUCHECK_IMAGES="$(IMAGE)") $(VENV)/bin/pytest -m "images$(if $(GPUS),, and not gpu)" tests/images

lint: $(VENV)/.test ## formatting, types, playbooks, Dockerfiles
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/hadolint images/*/Dockerfile*

lab-down: $(VENV)/.provision ## remove the lab's containers, network and keys
	@$(VENV)/bin/gpucheck lab down --name $(LAB)

clean: ## remove what was built here; installed system packages stay
	@rm -rf $(VENV) .lab build reports .mypy_cache .pytest_cache .ruff_cache

# What the tests run beside Python: a browser for the HTML pages, lspci to read the simulated PCI tree, sshd for hosts that
# are reached by SSH, promtool for metrics, rules and dashboard. No server is started or enabled: policy-rc.d refuses that to
# packages, and of the package prometheus (19 MB, 96 MB installed) only promtool is unpacked.
.PHONY: tools
tools: | $(VENV)/bin/python
	@missing=; for pair in chromium:chromium chromedriver:chromium-driver lspci:pciutils sshd:openssh-server; do \
	  PATH="$$PATH:/usr/sbin" command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; done; \
	if [ -n "$$missing" ]; then \
	  echo "gpucheck: installing$$missing, because tests open pages in a browser, read PCI trees with lspci and reach hosts by SSH" >&2; \
	  policy=/usr/sbin/policy-rc.d; [ -e $$policy ] || { printf '#!/bin/sh\nexit 101\n' | $(SUDO) install -m 755 /dev/stdin $$policy; trap "$(SUDO) rm -f $$policy" EXIT; }; \
	  $(SUDO) $(APT_GET) update && DEBIAN_FRONTEND=noninteractive $(SUDO) $(APT_GET) install --yes --no-install-recommends $$missing >/dev/null; \
	  case "$$missing" in *openssh-server*) $(SUDO) systemctl --quiet disable ssh.service ssh.socket 2>/dev/null || :;; esac; \
	fi
	@if ! PATH="$$PATH:$(VENV)/bin" command -v promtool >/dev/null && command -v apt-get dpkg-deb >/dev/null; then \
	  echo "gpucheck: unpacking promtool of the package prometheus to $(VENV)/bin, because tests check metrics and rules with it" >&2; \
	  folder=$$(mktemp -d); chmod 755 "$$folder"; trap 'rm -rf "$$folder"' EXIT; \
	  get='apt-get -qq -o APT::Sandbox::User=root download prometheus'; \
	  { cd "$$folder" && { $$get 2>/dev/null || { $(SUDO) $(APT_GET) update && $$get; }; } && cd "$$OLDPWD" && dpkg-deb --fsys-tarfile "$$folder"/prometheus_*.deb | \
	    tar -x -C "$$folder" ./usr/bin/promtool && mv "$$folder/usr/bin/promtool" $(VENV)/bin/; } || \
	    echo "gpucheck: promtool cannot be had here; its tests are skipped" >&2; \
	fi

# What a bundle is made with: its signature, and the lists of its packages.
.PHONY: bundle-tools
bundle-tools:
	@missing=; for pair in gpg:gnupg apt-ftparchive:apt-utils createrepo_c:createrepo-c; do \
	  command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; done; \
	if [ -n "$$missing" ] && command -v apt-get >/dev/null; then \
	  echo "gpucheck: installing$$missing, because a bundle is signed and carries lists of its packages" >&2; \
	  $(SUDO) $(APT_GET) update && DEBIAN_FRONTEND=noninteractive $(SUDO) $(APT_GET) install --yes --no-install-recommends $$missing >/dev/null; \
	fi

.PHONY: target
ifdef INVENTORY
target:
	@test -e "$(INVENTORY)" || { echo "INVENTORY=$(INVENTORY): no such file or folder. Give the path of an Ansible inventory with a group gpu (example: playbooks/inventory/example), or omit INVENTORY to use the embedded lab." >&2; exit 64; }
else
target: $(VENV)/.provision
	@$(VENV)/bin/gpucheck lab up --name $(LAB)
endif

# What hosts install next to torch: every version of constraints.txt with its hashes, for all supported Pythons.
requirements.lock: pyproject.toml constraints.txt | $(VENV)/.provision
	@{ sed -n '/^#/p' $@; printf '%s\n' 'numpy>=1.26' filelock fsspec networkx setuptools sympy typing-extensions \
	  | $(VENV)/bin/python -m uv pip compile --quiet pyproject.toml - -c constraints.txt --universal --python-version 3.10 \
	    --generate-hashes --only-binary :all: --no-header --no-annotate --no-config; } >$@.partial && mv $@.partial $@

# A stamp for each set of extras: nothing is installed twice, and a change of the pins installs again.
$(VENV)/.provision: EXTRAS := provision
$(VENV)/.release: EXTRAS := provision,release
$(VENV)/.test: EXTRAS := provision,torch,dev
# gpustat is published as source only, and builds with setuptools-scm.
$(VENV)/.test: BUILD_TOOLS := setuptools-scm
$(VENV)/.provision $(VENV)/.release $(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "gpucheck: installing its Python packages ($(EXTRAS)) into $(VENV), at the versions of constraints.txt: some minutes, once" >&2
	@install="$(VENV)/bin/python -m pip install --disable-pip-version-check -c constraints.txt"; { \
	  $$install -q setuptools $(BUILD_TOOLS) && $$install --no-build-isolation -e '.[$(EXTRAS)]' | \
	  sed -un '/[.]metadata/d; s/^ *Downloading /  downloading /p; s/^Installing collected.*/  unpacking/p'; } 2> >(sed '/^WARNING/d' >&2) >&2 || \
	  { echo "gpucheck: pip could not install them, for the reason above. A proxy: https_proxy, your own index: PIP_INDEX_URL. Then run make again." >&2; exit 1; }
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$(PYTHON) is older than 3.10 or missing. Install a newer Python and name it: make PYTHON=python3.11 ..." >&2; exit 64; }
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "gpucheck: installing python3-venv, because this Python cannot make virtual environments" >&2; \
	  $(SUDO) $(APT_GET) update && $(SUDO) $(APT_GET) install --yes python3-venv >/dev/null; \
	fi
	@$(PYTHON) -m venv $(VENV)
