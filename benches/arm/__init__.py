"""Benchmarks for a Raspberry Pi, run in the arm64 tree: ``make bench-arm``.

An emulator's seconds are no Pi's. What counts is what is counted (system calls, bytes), and
how two programs compare that run in the same emulator.
"""
