# SPDX-License-Identifier: Apache-2.0
"""What the engine's driver uses of vLLM: transformers decodes, and selects through the operators.

FAKE_VLLM names how it behaves: ``dies-at-start``, ``aborts``, ``hangs``, or ``odd``: a wrong row
in each call, other tokens in every run, and no tokens that are given.
"""

import os
import time
from types import SimpleNamespace

import torch

import vllm._C_stable_libtorch as library
from vllm.engine.arg_utils import EngineArgs

__version__ = "0.33.0"


class SamplingParams:
    """Greedy only; ``trace_decode_token_ids`` are emitted in place of the best."""

    def __init__(self, *, temperature, max_tokens, ignore_eos, detokenize, logprobs, **more):
        assert temperature == 0.0
        assert ignore_eos
        assert not detokenize
        self.max_tokens, self.logprobs = max_tokens, logprobs
        self.trace = more.pop("trace_decode_token_ids", None)
        assert not more


class LLM:
    """Loads what transformers saved, and decodes with it on the CPU."""

    def __init__(self, **arguments):
        told = EngineArgs(**arguments)
        self._how = os.environ.get("FAKE_VLLM", "")
        self._runs = 0
        if told.enforce_eager is False:
            # A graph engine calls the operators while it captures.
            for captured in (False, True):
                library.CAPTURING.append(captured)
                for rows in told.compilation_config["cudagraph_capture_sizes"]:
                    _select(torch.zeros(rows, 64), torch.full((rows,), 20, dtype=torch.int32), 16)
                library.CAPTURING.pop()
        if self._how == "dies-at-start":
            raise ValueError("no engine today")
        self._folder, self._model = told.model, None
        layer = SimpleNamespace(
            get_attn_backend=lambda: SimpleNamespace(get_name=lambda: "FAKE_QSA")
        )
        config = SimpleNamespace(
            model_config=SimpleNamespace(
                enable_trace_replay=told.enable_trace_replay and self._how != "odd",
                max_model_len=told.max_model_len,
            ),
            use_v2_model_runner=True,
            compilation_config=SimpleNamespace(
                cudagraph_mode=SimpleNamespace(
                    name="NONE" if told.enforce_eager else "FULL_AND_PIECEWISE"
                ),
                cudagraph_capture_sizes=(told.compilation_config or {}).get(
                    "cudagraph_capture_sizes", []
                ),
                static_forward_context={"layer": layer, "other": object()},
            ),
            scheduler_config=SimpleNamespace(max_num_seqs=told.max_num_seqs),
        )
        self.llm_engine = SimpleNamespace(vllm_config=config)

    def generate(self, prompts, params, *, use_tqdm):
        """Answer each prompt; the operators are called as vLLM's model does."""
        from thorprobe.topk.qwen4exp import Batched, through_ladder

        assert not use_tqdm
        if self._how == "aborts":
            os.abort()
        if self._how == "hangs":
            time.sleep(3_600)
        self._runs += 1
        if self._model is None:
            from transformers import AutoModelForCausalLM

            self._model = AutoModelForCausalLM.from_pretrained(
                self._folder, dtype=torch.float32, attn_implementation="sdpa"
            ).eval()
        with torch.no_grad(), through_ladder(Batched(_scaled)):
            answers = [self._decoded(prompt["prompt_token_ids"], params) for prompt in prompts]
        return [SimpleNamespace(outputs=[answer]) for answer in answers]

    def _decoded(self, prompt, params):
        from transformers import DynamicCache

        cache = DynamicCache(config=self._model.config)
        fed, tokens, logprobs = list(prompt), [], []
        for index in range(params.max_tokens):
            logits = self._model(torch.tensor([fed]), past_key_values=cache, use_cache=True).logits
            line = logits[0, -1].double().log_softmax(-1)
            if self._how == "odd":
                line[self._runs + 7] = 0.0
            best = line.topk(params.logprobs or 1)
            token = params.trace[index] if params.trace else int(best.indices[0])
            found = dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
            found[token] = float(line[token])
            logprobs.append({t: SimpleNamespace(logprob=value) for t, value in found.items()})
            tokens.append(token)
            fed = [token]
        return SimpleNamespace(
            token_ids=tokens, logprobs=logprobs if params.logprobs is not None else None
        )


def _scaled(scores, lengths, k):
    """Undo transformers' division, as vLLM has none."""
    width = int(os.environ.get("FAKE_WIDTH", "32"))
    return _select(scores * width**0.5, lengths, k)


def _select(scores, lengths, k):
    """Select as the call site does: the cooperative operator up to 64 rows, else the other."""
    output = torch.empty(scores.shape[0], k, dtype=torch.int32)
    name = "cooperative_topk" if scores.shape[0] <= 64 else "persistent_topk"
    workspace = torch.empty(0, dtype=torch.uint8)
    getattr(torch.ops._C, name)(scores, lengths, output, workspace, k, scores.shape[1])
    return output
