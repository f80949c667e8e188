"""Hostile input for everything that reads what a person, another tool or another host wrote.

A target is one function in ``targets/``; its seeds are real inputs, which hypothesis changes. ``make test`` runs a few
inputs of each target, ``make fuzz`` goes on with new ones.
"""
