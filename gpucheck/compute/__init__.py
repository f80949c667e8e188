"""Compute on every GPU at the same time: matrix and memory rates, repeated operations that must agree, and traces."""
