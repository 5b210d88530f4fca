# SPDX-License-Identifier: Apache-2.0
"""A worker without a GPU: speaks the wire protocol, and misbehaves where a spec asks it to.

The spec's ``spin_cycles`` says how: 1 stops answering but keeps beating, 2 dies, 3 reports a sticky
error, 4 stops everything, 5 answers after 50 ms, 6 finds its context finished unless it is
the first launch of this worker. Everything else launches up to 8 CTAs.
"""

import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[1]))

from devices import LIMITS
from thorprobe.record import Device, Observed, Origin, Outcome, Status
from thorprobe.run import worker_protocol

DEVICE = Device(
    name="Fake GPU",
    capability=(9, 0),
    sms=8,
    limits=LIMITS,
)

_lock = threading.Lock()
_beating = threading.Event()


def _send(message: worker_protocol.FromWorker) -> None:
    with _lock:
        sys.stdout.buffer.write(worker_protocol.encode(message) + b"\n")
        sys.stdout.buffer.flush()


def _beat() -> None:
    while not _beating.wait(0.05):
        _send(worker_protocol.Beat(stage="sync"))


def main() -> None:
    """Answer until the pipe closes."""
    lines = iter(sys.stdin.buffer)
    next(lines)
    _send(worker_protocol.Hello(device=DEVICE, software={"fake": "1"}))
    threading.Thread(target=_beat, daemon=True).start()
    for number, line in enumerate(lines):
        message = worker_protocol.to_worker(line)
        if not isinstance(message, worker_protocol.Ask):
            continue
        spec = message.spec
        how = spec.spin_cycles
        _send(worker_protocol.Beat(stage="launch"))
        if how == 1:
            time.sleep(60)
        if how == 2:
            os._exit(9)
        if how == 4:
            _beating.set()
            time.sleep(60)
        if how == 5:
            time.sleep(0.05)
        code = 0 if spec.cluster_size <= 8 else 912
        untried = how == 6 and number > 0
        outcome = Outcome(
            id=spec.id,
            spec=spec,
            status=Status.ERROR if how == 3 else Status.PASS,
            origin=Origin.MEASURED,
            observed=Observed(
                max_potential=8,
                max_potential_code=0,
                max_active=8 // spec.cluster_size,
                max_active_code=0,
                launch_code=code,
                sync_code=700 if how == 3 else 0,
                cluster_seen=None if code else spec.cluster_size,
                verified=None if code else True,
            ),
            driver_log=(),
        )
        _send(
            worker_protocol.Answer(
                outcome=outcome, poisoned=how == 3 or untried, untried=untried, compiler="none"
            )
        )
        if how == 3 or untried:
            os._exit(0)


if __name__ == "__main__":
    main()
