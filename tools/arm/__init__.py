"""Wheels for other processors, and a Raspberry Pi's file tree to try them in under QEMU.

Needs Debian 12 (apt, PyPI and crates.io), or any Linux with rustup for the wheels alone.
Everything made is kept in one cache outside the checkout, and made only once.
"""
