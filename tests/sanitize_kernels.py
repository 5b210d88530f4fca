# SPDX-License-Identifier: Apache-2.0
"""Runs both kernels on small shapes in this process, for compute-sanitizer to watch.

``compute-sanitizer --tool memcheck python tests/sanitize_kernels.py``, and ``--tool racecheck``.
Prints one line a launch and exits 1 where a result is wrong.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from thorprobe.driver.context import Context
from thorprobe.record import LaunchSpec, Status, Workload
from thorprobe.run.probe import Prober

SHAPES = ((16_400, 16_400), (20_000, 17_001), (2_000, 1_500), (600, 100), (600, 0))
# columns, length: whole cluster, whole cluster with an uneven slice, one CTA, trivial, empty.


class _NoLog:
    """No driver log: to open one provokes an error, which the sanitizer would count."""

    def take(self):
        """Return that there is none."""
        return


def specs():
    """Both kernels at sizes that divide evenly and ones that do not."""
    for size in (1, 2, 3, 8, 16):
        shape = {
            "grid": (2, size, 1),
            "cluster": (1, size, 1),
            "non_portable": True,
            "block": (1024, 1, 1),
        }
        for smem in (0, 1_000):
            yield LaunchSpec(kernel="trivial", dynamic_smem=smem, **shape)
        for columns, length in SHAPES:
            work = Workload(rows=2, columns=columns, stride=columns, length=length, k=512)
            yield LaunchSpec(kernel="topk", dynamic_smem=156_416, workload=work, **shape)
    # Too little shared memory for a slice: the row is read again in every pass.
    work = Workload(rows=1, columns=40_000, stride=40_000, length=40_000, k=2_048)
    yield LaunchSpec(
        kernel="topk",
        grid=(1, 2, 1),
        cluster=(1, 2, 1),
        block=(1024, 1, 1),
        dynamic_smem=40_000,
        workload=work,
    )


def main() -> int:
    """Run them all."""
    prober = Prober(Context(0), _NoLog(), "numpy", lambda _stage: None)
    wrong = 0
    for spec in specs():
        outcome = prober.answer(spec)
        good = outcome.status is Status.PASS and outcome.observed.verified
        wrong += not good
        print("ok   " if good else "WRONG", spec.id, outcome.note)
    print(f"{wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
