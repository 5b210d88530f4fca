# SPDX-License-Identifier: Apache-2.0
"""The environment variables of the drop-in. Nothing is imported here."""

VARIABLE = "THORPROBE_VLLM"
"""The environment variable that says how much is replaced."""


LOG_VARIABLE = "THORPROBE_VLLM_LOG"
"""The environment variable that names a file for what was done: a line of JSON a process."""


MODES = ("fallback", "always", "check", "report")
"""What the variable may say; docs/vllm.md has what each does."""


OFF = ("", "0", "off")
"""What it says where nothing is to be done, as where it is not set."""
