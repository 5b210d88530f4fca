# SPDX-License-Identifier: Apache-2.0
"""What an engine's process is started with."""

from collections.abc import Mapping

ENVIRONMENT: Mapping[str, str] = {
    # One process, so that calls are seen, and an error arrives with its frames.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    # A machine without a network has no address of its own.
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}
"""What an engine's process is started with."""
