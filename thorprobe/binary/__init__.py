# SPDX-License-Identifier: Apache-2.0
"""What wheels, libraries, cubins and fatbins hold, read within bounds: all untrusted."""
