"""Tests of the files of a release."""
