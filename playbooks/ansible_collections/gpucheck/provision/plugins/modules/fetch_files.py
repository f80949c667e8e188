#!/usr/bin/python
"""Documentation of fetch_files; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: fetch_files
short_description: Copy many and large files from a host, each in one transfer
description:
  - Copies as the login user, and never reads a complete file into memory, as M(ansible.builtin.fetch) does for root.
    The contents are not compared with anything.
  - The names may come from the host. Absolute names, C(..), control characters, and symbolic links in the way are
    rejected before the first file is fetched.
options:
  src:
    description: The folder there.
    type: str
    required: true
  dest:
    description: The folder here.
    type: str
    required: true
  files:
    description: Paths relative to both folders, at most 20000.
    type: list
    elements: str
    required: true
  largest_bytes:
    description:
      - Size in bytes that all files together may have. The default is 32 GiB. 1 GiB of the controller's file system
        stays free, whatever this is.
    type: int
    default: 34359738368
  sizes:
    description: Size in bytes by path, as the host stated it. A file that is larger is cut off and removed.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Does nothing in check mode.
    support: none
notes:
  - Why this module exists. M(ansible.builtin.fetch) reads a whole file into memory with become; reports and
    packages have up to gigabytes.
author: gpucheck
"""

EXAMPLES = r"""
- name: Fetch a package
  gpucheck.provision.fetch_files:
    src: /var/tmp/collected
    dest: /srv/collected
    files: [packages/libnccl2.deb]
"""

RETURN = "# nothing"
