# SPDX-License-Identifier: Apache-2.0
"""``python -m thorprobe``."""

from thorprobe.app import main

if __name__ == "__main__":
    main()
