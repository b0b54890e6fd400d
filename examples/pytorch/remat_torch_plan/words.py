# SPDX-License-Identifier: BSL-1.0
"""Words of messages."""


def count(n, thing):
    """`n` things: 1 call, 2 calls."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"
