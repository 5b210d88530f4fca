# SPDX-License-Identifier: Apache-2.0
"""Commands: arguments in, a question put, a renderer out. Heavy imports wait for a command."""
