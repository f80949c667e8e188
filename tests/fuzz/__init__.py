"""Fuzzing of everything that reads what a person, another tool or another host wrote.

``make fuzz``, or ``python -m tests.fuzz --help``. A target is one function in ``targets/``; its seeds are real inputs.
An input is made from the seed number, the target's name and the number of the case alone, so each can be made again.
"""
