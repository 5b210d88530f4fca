# SPDX-License-Identifier: Apache-2.0
"""The arguments of an engine that the driver gives."""

from dataclasses import dataclass


@dataclass
class EngineArgs:
    """Names as vLLM has them; one of the driver's, ``kv_cache_memory_bytes``, is missing."""

    model: str
    load_format: str
    skip_tokenizer_init: bool
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    enforce_eager: bool
    enable_prefix_caching: bool
    enable_trace_replay: bool
    seed: int
    disable_log_stats: bool
    compilation_config: dict | None = None
    gdn_prefill_backend: str = ""
