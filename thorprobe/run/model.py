# SPDX-License-Identifier: Apache-2.0
"""A model of a device answers instead of it: kernels really compiled for it, nothing launched."""

from collections.abc import Iterator, Sequence

import msgspec

from thorprobe.binary.cubin import KernelFacts
from thorprobe.binary.cubin import facts as read_facts
from thorprobe.driver import compile as kernels
from thorprobe.driver import partition as partitions
from thorprobe.errors import UsageError
from thorprobe.model.gpc_maps import Admissible
from thorprobe.model.predict import calls, effective_cluster, predict
from thorprobe.model.profile import Profile, load
from thorprobe.record import Claim, LaunchSpec, Observed, Origin, Outcome, Status
from thorprobe.run.shipped import Shipped


class ModelAnswerer:
    """Answers from a device profile: once by its layout alone, and once under each claim.

    ``device``, ``software`` and ``inputs`` are those of the answerer protocol; the compiler's
    version and the hashes of kernels are there once a launch with them was answered.
    """

    origin = Origin.PREDICTED

    def __init__(self, profile: Profile | str, partition: str = "") -> None:
        """Take a profile or its name.

        Raises UsageError for an unknown profile, for a partition that was not measured, and for a
        device without clusters.
        """
        self.profile = load(profile) if isinstance(profile, str) else profile
        if self.profile.target not in kernels.TARGETS:
            major, minor = self.profile.capability
            raise UsageError(
                f"profile `{self.profile.name}` is of compute capability {major}.{minor}, but the "
                f"kernels are compiled for {', '.join(kernels.TARGETS)}",
                "thread-block clusters need compute capability 9.0 or later",
            )
        self.device = self.profile.device(partition)
        self.software: dict[str, str] = {}
        self.inputs = {f"profile {self.profile.name}": self.profile.sha256}
        self.maps = self.profile.admissible(partition=partition)
        self._claimed: list[tuple[Claim, Admissible]] = [
            (claim, self.profile.admissible(claim)) for claim in self.device.claims
        ]
        self.device = msgspec.structs.replace(self.device, admissible_maps=self.admissible())
        self._facts: dict[tuple[str, int], KernelFacts] = {}
        self._unknown: set[str] = set()

    def admissible(self) -> dict[str, int | None]:
        """Count the maps behind the answers: ``""`` by the layout alone, then by claim id.

        None where they are too many to list.
        """
        return {"": self.maps.count} | {claim.id: maps.count for claim, maps in self._claimed}

    def ask(self, specs: Sequence[LaunchSpec]) -> Iterator[Outcome]:
        """Predict each launch; the outcome by layout first, then one per claim.

        Raises UsageError for an unknown kernel and for a partition other than the answerer's,
        CouldNotProbeError where NVRTC is missing.
        """
        for spec in specs:
            self._same_partition(spec)
            facts = self._facts.get((spec.kernel, spec.compiled_cluster))
            facts = facts or self.facts(spec.kernel, spec.compiled_cluster)
            yield self._outcome(spec, facts, self.maps, None)
            for claim, maps in self._claimed:
                yield self._outcome(spec, facts, maps, claim)

    def attach(self, shipped: Shipped) -> None:
        """Take kernels that later launches may name, with what their cubins say."""
        self._facts |= shipped.facts()
        self._unknown |= {kernel.label for kernel in shipped.kernels if not kernel.layout}
        self.inputs |= shipped.inputs

    def close(self) -> None:
        """Nothing is held open."""

    def facts(self, kernel: str, compiled_cluster: int = 0) -> KernelFacts:
        """Compile a kernel for the profile's device and read its resources."""
        key = (kernel, compiled_cluster)
        if key not in self._facts:
            cubin = kernels.compile_cubin(kernel, self.profile.target, compiled_cluster)
            self._facts[key] = read_facts(cubin, kernels.KERNELS[kernel].function)
            self.software["nvrtc"] = kernels.nvrtc_version()
            self.inputs |= kernels.hashes([kernel])
        return self._facts[key]

    def _least(self, spec: LaunchSpec) -> str:
        """Say what was assumed of a kernel whose launch is not known."""
        if spec.kernel not in self._unknown:
            return ""
        return f"its block and dynamic shared memory are not known: {spec.threads} threads and none"

    def _same_partition(self, spec: LaunchSpec) -> None:
        if not partitions.same(spec.partition, self.device.partition):
            raise UsageError(
                f"partition `{spec.partition}` was asked of a model of "
                f"`{self.device.partition or 'the whole device'}`",
                "give the same `--partition` to the answerer and to the plan",
            )

    def _outcome(
        self, spec: LaunchSpec, facts: KernelFacts, maps: Admissible, claim: Claim | None
    ) -> Outcome:
        limits = self.device.limits
        seen = predict(spec, facts, limits, maps, self.profile.max_cluster_ctas)
        return Outcome(
            id=f"{spec.id} under {claim.id}" if claim else spec.id,
            spec=spec,
            status=Status.PASS,
            origin=self.origin,
            observed=seen,
            calls=calls(spec, facts, limits, seen),
            assumes=(claim.id,) if claim else (),
            note="; ".join(filter(None, (_note(spec, facts, seen, maps), self._least(spec)))),
            source=f"profile {self.profile.name}" + (f"; {claim.source}" if claim else ""),
        )


def _note(spec: LaunchSpec, facts: KernelFacts, seen: Observed, maps: Admissible) -> str:
    """Name what would decide a launch that the model leaves open."""
    if seen.launch_code is not None:
        return ""
    if seen.max_active_range is None:
        return "a cluster launch on a device without clusters: its code was not measured"
    count = maps.count
    many = f"{count:,} admissible GPC maps" if count is not None else "the admissible GPC maps"
    if seen.max_active_range[0] and spec.cooperative:
        return f"{many} differ in how many CTAs fit at once; max_active on the device decides"
    x, y, z = effective_cluster(spec, facts)
    return (
        f"{many} differ: it launches where a group of at least {x * y * z} SMs exists, "
        "which cuOccupancyMaxPotentialClusterSize on the device decides"
    )
