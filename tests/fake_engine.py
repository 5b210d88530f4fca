# SPDX-License-Identifier: Apache-2.0
"""An engine's process with a fake vLLM, on the CPU: thorprobe's own child, its GPU left out.

An engine's name says how its vLLM behaves; see fake_vllm.
"""

import os
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
if __name__ == "__main__":  # Not where a test only reads `small` here.
    sys.path[:0] = [str(HERE), str(HERE / "fake_vllm"), str(HERE.parent)]


def small():
    """Return the models with small widths, of which every prompt past 64 tokens selects."""
    from thorprobe.vllm.engine_plan import MODELS, Model

    widths = {
        "hidden_size": 64,
        "num_attention_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "hc_count": 2,
        "hc_lowrank": 16,
        "indexer_head_dim": 32,
        "indexer_budget": 64,
    }
    return {
        name: Model(name=name, sentence=model.sentence, config=model.config | widths)
        for name, model in MODELS.items()
    }


def main():
    """Serve as the child does; a partition refuses, and a drop-in selects as thorprobe does."""
    from devices import H200
    from thorprobe.driver import context
    from thorprobe.errors import CouldNotProbeError
    from thorprobe.vllm import dropin, engine_child, engine_plan, engine_start
    from thorprobe.vllm.engine_watch import Watch

    torch.set_num_threads(1)
    engine_plan.MODELS.update(small())
    import vllm._C_stable_libtorch as library

    torch.cuda.is_available = lambda: True
    torch.cuda.is_current_stream_capturing = lambda: library.CAPTURING[-1]

    class Whole:
        def __init__(self, _ordinal):
            pass

        def device(self, _others, driver):
            return H200.__class__(
                name=H200.name, capability=(9, 0), sms=132, limits=H200.limits, driver=driver
            )

    def opened(partition):
        if partition == "sms=9999":
            raise CouldNotProbeError("there is no such partition")
        library.REFUSING[0] = bool(partition)
        return Watch(torch.ops._C)

    imported = engine_start.import_vllm

    def named(engine):
        os.environ["FAKE_VLLM"] = engine.name
        return imported(engine)

    def ladder():
        for name in ("cooperative_topk", "persistent_topk"):
            setattr(torch.ops._C, name, library.topk)

    context.Context, context.driver_version = Whole, lambda: "580.0"
    engine_start.open_watch, engine_start.import_vllm = opened, named
    dropin.register = ladder
    engine_child.main()


if __name__ == "__main__":
    main()
