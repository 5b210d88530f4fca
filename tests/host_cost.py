# SPDX-License-Identifier: Apache-2.0
"""Where the host's microseconds of a call go, on a GPU: ``host_cost.py [ROWS COLUMNS K]``.

A line for each way to make a call or a part of one, median and least over blocks that begin with
an idle device. All lengths are 0, so that the device keeps up. The driver's own part is seen three
ways: through the bindings, through ctypes with the same struct, and without a cluster attribute.
"""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from cuda.bindings import driver

from thorprobe import topk
from thorprobe.topk import array, kernel
from thorprobe.topk.plans import plans

BLOCKS, EACH = 16, 250
# A stream holds about 1,000 launches before the next call waits.


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Return the median and the least microseconds of a call."""
    call()
    taken = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        began = perf_counter()
        for _ in range(EACH):
            call()
        taken.append((perf_counter() - began) / EACH * 1e6)
    torch.cuda.synchronize()
    return median(taken), min(taken)


def through_ctypes(launch: kernel.Launch) -> Callable[[], int]:
    """Return a call of cuLaunchKernelEx by its address, with the struct of the bindings."""
    _, address, _ = driver.cuGetProcAddress(b"cuLaunchKernelEx", 12_000, 0)
    word = ctypes.c_void_p
    ask = ctypes.CFUNCTYPE(ctypes.c_int, word, word, word, word)(address)
    config, function = word(launch._config.getPtr()), word(int(launch.function))
    table, none = word(launch._parameters), word(None)
    return lambda: ask(config, function, table, none)


def without_attribute(launch: kernel.Launch) -> Callable[[], object]:
    """Return the launch as it is for one CTA a row, but without saying that its cluster is 1."""
    config = driver.CUlaunchConfig()
    for name in ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"):
        setattr(config, name, getattr(launch._config, name))
    config.sharedMemBytes, config.hStream = launch._config.sharedMemBytes, launch._stream
    config.numAttrs = 0
    return lambda: driver.cuLaunchKernelEx(config, launch.function, launch._parameters, 0)


def ways(rows: int, columns: int, k: int) -> dict[str, Callable[[], object]]:
    """Return what is timed, by name."""
    scores = torch.randn(rows, columns, device="cuda")
    lengths = torch.zeros(rows, dtype=torch.int32, device="cuda")
    out = torch.empty(rows, k, dtype=torch.int32, device="cuda")
    workspace = torch.empty(topk.workspace_bytes(rows, k), dtype=torch.uint8, device="cuda")
    held = {"out": out, "workspace": workspace}
    made: dict[str, Callable[[], object]] = {}
    topk.select(scores, lengths, k, **held)
    first = next(reversed(plans.by_key.values())).steps[0]
    made[f"select, auto ({first.choice.name})"] = lambda: topk.select(scores, lengths, k, **held)
    for rung in ("one-cta", "many-ctas"):
        made[f"select, {rung}"] = lambda rung=rung: topk.select(
            scores, lengths, k, rung=rung, **held
        )
        made[f"prepared, {rung}"] = topk.prepare(scores, lengths, k, rung=rung, **held)
    made["prepared, auto"] = topk.prepare(scores, lengths, k, **held)
    (launch,) = topk.prepare(scores, lengths, k, rung="one-cta", **held)._way.launches
    made["one-cta: cuLaunchKernelEx, bindings"] = launch.again
    made["one-cta: cuLaunchKernelEx, ctypes"] = through_ctypes(launch)
    made["one-cta: cuLaunchKernelEx, no attribute"] = without_attribute(launch)
    made["auto: cuLaunchKernelEx, bindings"] = first.launches[0].again
    made["auto: cuLaunchKernelEx, ctypes"] = through_ctypes(first.launches[0])
    stream = int(torch.cuda.current_stream().cuda_stream)
    made["cuCtxGetDevice and compare"] = lambda: kernel.enter(0)
    made["cuStreamGetGreenCtx"] = lambda: kernel.partition(stream)
    made["current stream"] = lambda: array.stream_reader("torch")(0)
    made["type, shape, strides, device, address of one tensor"] = lambda: array.read(scores)
    made["torch: out.zero_()"] = out.zero_
    return made


def main() -> int:
    """Time them all."""
    given = [int(word) for word in sys.argv[1:4]]
    rows, columns, k = given + [8, 16_384, 512][len(given) :]
    print(f"{torch.cuda.get_device_name()}, rows {rows}, columns {columns}, k {k}")
    print("median  least  us a call")
    for name, call in ways(rows, columns, k).items():
        usual, least = timed(call)
        print(f"{usual:6.2f} {least:6.2f}  {name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
