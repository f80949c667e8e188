#!/usr/bin/python
"""Documentation of show_text; the action plugin of the same name does the work on the controller."""

DOCUMENTATION = r"""
module: show_text
short_description: Print text for people as it is
description:
  - Prints the text line by line, without the quoting and wrapping of M(ansible.builtin.debug).
  - What a terminal would act on is written out.
options:
  text:
    description: What to print.
    type: str
    required: true
attributes:
  check_mode:
    description: Prints in check mode too.
    support: full
author: gpucheck
"""

EXAMPLES = r"""
- name: Show the table
  gpucheck.provision.show_text:
    text: "{{ table.stdout }}"
"""

RETURN = "# nothing"
