# SPDX-License-Identifier: Apache-2.0
"""Names of kernels in a column: without namespaces, and no longer than a column may be."""

LONGEST_NAME = 36
"""Characters of a kernel's name in a table, without its namespaces; the evidence has all of it."""


def shortened(name: str) -> str:
    """Leave namespaces out, and keep both ends of a long name: templates differ in arguments."""
    own = name.partition("<")[0]
    name = name[own.rfind("::") + 2 :] if "::" in own else name
    if len(name) <= LONGEST_NAME:
        return name
    half = (LONGEST_NAME - 3) // 2
    return f"{name[:half]}...{name[-half:]}"
