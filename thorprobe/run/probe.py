# SPDX-License-Identifier: Apache-2.0
"""Runs one probe in a worker: compile, launch, read what the kernel itself reported."""

import ctypes
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from cuda.bindings import driver

from thorprobe.driver import compile as kernels
from thorprobe.driver.context import Context, DriverLog, answer, require
from thorprobe.driver.launch import Launch, Parameters, pointers_and_words
from thorprobe.errors import ThorprobeError
from thorprobe.plan.operator import is_operator
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import Check, LaunchSpec, Observed, Origin, Outcome, Status, Workload
from thorprobe.run import worker_protocol
from thorprobe.run import workload as inputs
from thorprobe.run.shipped_module import QUERIED, ModuleRefusedError, ShippedModules, parameters

if TYPE_CHECKING:
    from thorprobe.run.operator_probe import OperatorProber

_MAGIC = 0x7470_726F
_HEAD_WORDS = 4096
_ONE_CTA_LENGTH = 16_384
# kernels/topk.cu keeps two arrays of 2,048 words before the stage, and gives rows up to that length
# to one CTA.
_UNWRITTEN = 0xFFFF_FFF9
_HANG_LIMIT_NS = 20_000_000_000

Stage = Callable[[str], None]


class Memory:
    """Device buffers by role, grown when a probe needs more. Plain cuMemAlloc."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._held: dict[str, tuple[int, int]] = {}

    def get(self, role: str, size: int) -> int:
        """Return the address of at least ``size`` bytes; the contents are whatever was there."""
        address, held = self._held.get(role, (0, 0))
        if held < size:
            if address:
                driver.cuMemFree(address)
                del self._held[role]
            address = int(require(f"cuMemAlloc of {size} bytes", driver.cuMemAlloc(max(size, 256))))
            self._held[role] = (address, max(size, 256))
        return address

    def put(self, role: str, array: Any) -> int:
        """Copy a contiguous array to the device and return its address."""
        address = self.get(role, array.nbytes)
        require("cuMemcpyHtoD", driver.cuMemcpyHtoD(address, array.ctypes.data, array.nbytes))
        return address

    def fill(self, role: str, words: int, value: int) -> int:
        """Set that many 32-bit words, so that what a kernel does not write shows."""
        address = self.get(role, words * 4)
        require("cuMemsetD32", driver.cuMemsetD32(address, value, words))
        return address

    def read(self, role: str, array: Any) -> None:
        """Copy back into a contiguous array."""
        address, _ = self._held[role]
        require("cuMemcpyDtoH", driver.cuMemcpyDtoH(array.ctypes.data, address, array.nbytes))


class Prober:
    """Answers launch specifications in this process, which a fault or a hang may cost."""

    def __init__(self, context: Context, log: DriverLog, oracle: str, stage: Stage) -> None:
        """Take an open context; ``oracle`` is numpy, torch or auto."""
        self._context = context
        self._log = log
        self._oracle_name = oracle
        self._oracle: inputs.Oracle | None = None
        self._stage = stage
        self._functions: dict[tuple[str, int], Any] = {}
        self._default_smem: dict[tuple[str, int], int] = {}
        self._keep: list[Any] = []
        self._memory = Memory()
        self._shipped = ShippedModules()
        self._uploaded: Workload | None = None
        self._made: Any = None
        self._nonce = 1
        self._operators: OperatorProber | None = None
        self.compiler = ""
        self.dead = False
        """True once a sticky error has finished the context."""
        self.untried = False
        """True where it was finished before the last probe, which was therefore not made."""

    def adopt(self, load: worker_protocol.Load) -> None:
        """Know the shipped kernels that later launches may name."""
        self._shipped.adopt(load.kernels, load.images)

    def load(self, asked: worker_protocol.Operators) -> None:
        """Load a library of vLLM, whose operators later launches may name; once is enough.

        Raises CouldNotProbeError where torch or the library is not what it must be.
        """
        if self._operators is None:
            from thorprobe.run.operator_worker import opened

            self._stage("load")
            self._operators = opened(asked, self._context, self.oracle, self._stage)

    def oracle(self) -> inputs.Oracle:
        """Return what results are compared with, made when it is first needed."""
        if self._oracle is None:
            self._oracle = inputs.oracle(self._oracle_name)
        return self._oracle

    def function(self, spec: LaunchSpec) -> Any:
        """Return the launch's function, compiled or shipped, loaded once."""
        key = (spec.kernel, spec.compiled_cluster)
        if key not in self._functions:
            self._stage("compile")
            if is_shipped(spec.kernel):
                self._functions[key] = self._shipped.function(spec)
            else:
                self._functions[key] = self._compiled(*key)
            which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._default_smem[key] = require(
                "cuFuncGetAttribute", driver.cuFuncGetAttribute(which, self._functions[key])
            )
        return self._functions[key]

    def _compiled(self, kernel: str, compiled_cluster: int) -> Any:
        """Compile a kernel (CuPy's RawModule, or NVRTC where CuPy is missing) and load it."""
        name = kernels.KERNELS[kernel].function
        try:
            import cupy
        except ImportError:
            return self._load_cubin(kernel, compiled_cluster, name)
        self.compiler = f"CuPy RawModule {cupy.__version__}"
        module = cupy.RawModule(
            code=kernels.source(kernel).text,
            options=kernels.compile_options(compiled_cluster),
        )
        self._keep.append(module)
        return driver.CUfunction(int(module.get_function(name).kernel.ptr))

    def _load_cubin(self, kernel: str, compiled_cluster: int, name: str) -> Any:
        self.compiler = f"NVRTC {kernels.nvrtc_version()}"
        major = self._context.attribute("COMPUTE_CAPABILITY_MAJOR")
        minor = self._context.attribute("COMPUTE_CAPABILITY_MINOR")
        cubin = kernels.compile_cubin(kernel, f"sm_{major}{minor}", compiled_cluster)
        module = require("cuModuleLoadData", driver.cuModuleLoadData(cubin))
        self._keep.append(module)
        return require("cuModuleGetFunction", driver.cuModuleGetFunction(module, name.encode()))

    def answer(self, spec: LaunchSpec) -> Outcome:
        """Run one probe; a CUDA failure is an answer, not an exception."""
        started = time.perf_counter()
        self._log.take()
        try:
            outcome = self._answer(spec)
        except ModuleRefusedError as error:
            outcome = _outcome(spec, Status.PASS, calls=(error.call,))
        except Exception as error:  # noqa: BLE001  a probe must cost one record, whatever it does
            note = f"{type(error).__name__}: {error}"[:400]
            if isinstance(error, ThorprobeError):
                note = error.sentence
            outcome = _outcome(spec, Status.ERROR, note=note)
            self.dead = bool(answer(driver.cuCtxSynchronize())[0])
        elapsed = (time.perf_counter() - started) * 1e6
        rest = self._log.take()
        # An operator's call has its sentences already: the rest is not about the call.
        said = rest if outcome.driver_log is None else outcome.driver_log
        return msgspec.structs.replace(outcome, driver_log=said, duration_us=round(elapsed, 1))

    def _answer(self, spec: LaunchSpec) -> Outcome:
        if is_operator(spec.kernel):
            return self._answer_operator(spec)
        launch = self._launch(spec)
        if launch.prior_error():
            self.dead = self.untried = True
            note = "the context was already dead before this probe"
            return _outcome(spec, Status.ERROR, calls=launch.calls, note=note)
        if is_shipped(spec.kernel) and not self._shipped.kernel(spec.kernel).parameters:
            seen = launch.query()
            return _outcome(spec, Status.PASS, observed=seen, calls=launch.calls, note=QUERIED)
        launch.parameters = self._parameters(spec)
        # Copies and fills run on the default stream, and a partition's stream does not wait for it.
        require("cuCtxSynchronize after the inputs", driver.cuCtxSynchronize())
        observed = launch.ask()
        status, note = Status.PASS, ""
        if observed.sync_code:
            status, self.dead = Status.ERROR, True
        elif observed.launch_code == 0:
            self._stage("check")
            observed, note = self._read(spec, observed)
            wrong = observed.verified is False or (observed.check and observed.check.wrong_rows)
            status = Status.FAIL if wrong else Status.PASS
            timed = launch.time() if spec.repeats and not wrong else None
            if spec.repeats and not wrong and not timed:
                late, _ = answer(driver.cuCtxSynchronize())
                observed = msgspec.structs.replace(observed, sync_code=late)
                status, self.dead = (Status.ERROR if late else status), bool(late)
                note = "it launched once, and timing it by graph replays failed"
            if timed:
                observed = msgspec.structs.replace(
                    observed, time_us=round(timed[0], 3), time_spread_us=round(timed[1], 3)
                )
        return _outcome(spec, status, observed=observed, calls=launch.calls, note=note)

    def _launch(self, spec: LaunchSpec) -> Launch:
        function = self.function(spec)
        default_smem = self._default_smem[spec.kernel, spec.compiled_cluster]
        return Launch(spec, function, self._context.stream, self._stage, default_smem)

    def _answer_operator(self, spec: LaunchSpec) -> Outcome:
        """Call an operator of vLLM; what fits is asked for thorprobe's own kernel."""
        if self._operators is None:
            message = f"`{spec.kernel}` was asked about, but its library is not loaded"
            raise ThorprobeError(message)
        outcome = self._operators.answer(spec, self._fits, self._log.take)
        self.dead, self.untried = self._operators.dead, self._operators.untried
        return outcome

    def _fits(self, spec: LaunchSpec) -> tuple[Observed, Any]:
        own = msgspec.structs.replace(spec, kernel="topk", compiled_cluster=0)
        launch = self._launch(own)
        return launch.query(), tuple(launch.calls)

    def _parameters(self, spec: LaunchSpec) -> Parameters:
        self._stage("input")
        ctas = max(1, spec.grid[0] * spec.grid[1] * spec.grid[2])
        if is_shipped(spec.kernel):
            return self._shipped_parameters(spec)
        if spec.kernel == "topk":
            work = self._upload(spec)
            if spec.dynamic_smem < _HEAD_WORDS * 4:
                raise ThorprobeError(
                    f"a top-k launch needs {_HEAD_WORDS * 4:,} B of dynamic shared memory at least"
                )
            stage = max(0, min(spec.dynamic_smem // 4 - _HEAD_WORDS, 49_152))
            chosen = self._memory.fill("chosen", work.rows * work.k, _UNWRITTEN)
            report = self._memory.fill("report", ctas * 4, 0)
            addresses = (self._memory.get("scores", 0), self._memory.get("lengths", 0))
            return pointers_and_words(
                (*addresses, chosen, report), (work.rows, work.stride, work.k, stage)
            )
        out = self._memory.fill("report", ctas * 8, 0)
        if spec.kernel == "trivial":
            self._nonce = (self._nonce * 1_664_525 + 1_013_904_223) & 0xFFFF_FFFF
            values = (out, self._nonce, 0, spec.spin_cycles)
            return values, (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64)
        if spec.kernel == "hang":
            return (out, _HANG_LIMIT_NS), (ctypes.c_void_p, ctypes.c_uint64)
        return pointers_and_words((out,), ())

    def _upload(self, spec: LaunchSpec) -> Workload:
        """Put the scores and lengths of a top-k launch on the device, unless they are there."""
        work = spec.workload
        if work is None:
            message = "a top-k launch needs a workload"
            raise ThorprobeError(message)
        if work != self._uploaded:
            self._uploaded = None
            self._made = inputs.scores(work)
            self._memory.put("scores", self._made)
            self._memory.put("lengths", np.full(work.rows, work.length, dtype=np.int32))
            self._uploaded = work
        return work

    def _shipped_parameters(self, spec: LaunchSpec) -> Parameters:
        kernel = self._shipped.kernel(spec.kernel)
        work = self._upload(spec)
        workspace = max(1, work.rows * kernel.workspace_bytes // 4)
        return parameters(
            kernel,
            {
                "logits": self._memory.get("scores", 0),
                "lengths": self._memory.get("lengths", 0),
                "output": self._memory.fill("chosen", work.rows * work.k, _UNWRITTEN),
                # Its contents need not be prepared, so they are made as unlike zeros as can be.
                "workspace": self._memory.fill("workspace", workspace, _UNWRITTEN),
                "rows": work.rows,
                "stride": work.stride,
            },
        )

    def _read(self, spec: LaunchSpec, observed: Observed) -> tuple[Observed, str]:
        if is_shipped(spec.kernel):
            return self._read_shipped(spec, observed)
        if spec.kernel == "topk":
            return self._read_topk(spec, observed)
        if spec.kernel == "trivial":
            return self._read_trivial(spec, observed)
        return observed, ""

    def _read_shipped(self, spec: LaunchSpec, observed: Observed) -> tuple[Observed, str]:
        """Compare the result; the kernel says nothing of itself."""
        check = self._compared(spec)
        right = check is not None and check.wrong_rows == 0
        observed = msgspec.structs.replace(observed, verified=right, check=check)
        return observed, check.detail if check is not None else ""

    def _compared(self, spec: LaunchSpec) -> Check | None:
        work = spec.workload
        if work is None:
            return None
        chosen = np.empty((work.rows, work.k), dtype=np.int32)
        self._memory.read("chosen", chosen)
        return inputs.check(work, self._made, chosen, self.oracle())

    def _read_topk(self, spec: LaunchSpec, observed: Observed) -> tuple[Observed, str]:
        work, check = spec.workload, self._compared(spec)
        if work is None or check is None:
            return observed, ""
        report = np.empty((spec.grid[0], spec.grid[1], 4), dtype=np.uint32)
        self._memory.read("report", report)
        seen, ranks_right = _cluster(report[:, :, 0], report[:, :, 1], spec)
        length = min(work.length, work.stride)
        path = 1 if length <= work.k else 2 if length <= _ONE_CTA_LENGTH else 3
        wrong = [
            text
            for text, good in (
                (f"the cluster size seen is {seen}", seen == spec.cluster_size),
                ("the ranks are not those of one cluster", ranks_right),
                (
                    "a CTA took another path than its row length asks for",
                    (report[:, :, 3] == path).all(),
                ),
                (check.detail, check.wrong_rows == 0),
            )
            if not good
        ]
        observed = msgspec.structs.replace(
            observed, cluster_seen=seen, verified=not wrong, check=check
        )
        return observed, "; ".join(wrong)

    def _read_trivial(self, spec: LaunchSpec, observed: Observed) -> tuple[Observed, str]:
        clusters, size = spec.grid[0], spec.grid[1]
        report = np.empty((clusters, size, 8), dtype=np.uint32)
        self._memory.read("report", report)
        index = np.arange(clusters * size, dtype=np.uint32).reshape(clusters, size)
        words = np.uint32(self._nonce) ^ ((index + np.uint32(1)) * np.uint32(2_654_435_761))
        copies = 2 if spec.dynamic_smem >= 4 else 1
        seen, ranks_right = _cluster(report[:, :, 1], report[:, :, 2], spec)
        peers = words.reshape(clusters, -1, spec.cluster_size).sum(axis=2, dtype=np.uint32)
        expected = np.repeat(peers, spec.cluster_size, axis=1) * np.uint32(copies)
        wrong = [
            text
            for text, good in (
                ("a CTA did not report", (report[:, :, 0] == _MAGIC).all()),
                (f"the cluster size seen is {seen}", seen == spec.cluster_size),
                ("the ranks are not those of one cluster", ranks_right),
                ("a sum read through DSMEM is wrong", (report[:, :, 3] == expected).all()),
                ("the dynamic shared memory differs", (report[:, :, 5] == spec.dynamic_smem).all()),
            )
            if not good
        ]
        groups = tuple(tuple(sorted(set(row))) for row in report[:, :, 4].tolist())
        observed = msgspec.structs.replace(
            observed,
            cluster_seen=seen,
            verified=not wrong,
            sm_groups=groups if spec.spin_cycles else (),
        )
        return observed, "; ".join(wrong)


def _cluster(sizes: Any, ranks: Any, spec: LaunchSpec) -> tuple[int, bool]:
    """Return the cluster size all CTAs saw (0 where they differ), and whether ranks are right."""
    seen = int(sizes.flat[0]) if (sizes == sizes.flat[0]).all() else 0
    wanted = np.arange(ranks.shape[1]) % max(1, spec.cluster_size)
    return seen, seen == spec.cluster_size and bool((ranks == wanted).all())


def _outcome(
    spec: LaunchSpec,
    status: Status,
    *,
    observed: Observed | None = None,
    calls: Any = (),
    note: str = "",
) -> Outcome:
    return Outcome(
        id=spec.id,
        spec=spec,
        status=status,
        origin=Origin.MEASURED,
        observed=observed or Observed(),
        calls=tuple(calls),
        note=note,
    )
