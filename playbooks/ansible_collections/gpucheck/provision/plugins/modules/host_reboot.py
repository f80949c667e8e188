#!/usr/bin/python
"""Documentation of host_reboot; the action plugin of the same name does the work, by Ansible's own means."""

DOCUMENTATION = r"""
module: host_reboot
short_description: Reboot a host with commands that are given, and wait until it has booted again
description:
  - M(ansible.builtin.reboot), which reads facts of the host and searches it for programs to choose its commands from.
    Here they are given, so that none of that is asked.
options:
  reboot_command:
    description: What reboots the host, program and words.
    type: str
    required: true
  boot_time_command:
    description: What says something else after every boot.
    type: str
    required: true
  reboot_timeout:
    description: Seconds to wait for the host.
    type: int
    required: true
attributes:
  check_mode:
    description: Says that it would reboot.
    support: full
author: gpucheck
"""

EXAMPLES = r"""
- name: Reboot
  gpucheck.provision.host_reboot:
    reboot_command: systemctl reboot
    boot_time_command: cat /proc/sys/kernel/random/boot_id
    reboot_timeout: 900
  become: true
"""

RETURN = r"""
rebooted:
  description: Whether the host has booted again.
  returned: always
  type: bool
elapsed:
  description: Seconds that it took.
  returned: always
  type: int
"""
