# SPDX-License-Identifier: Apache-2.0
"""The gate that would be right, as text for an upstream issue: what was found, and what to ask."""

from collections.abc import Iterator, Mapping, Sequence

from thorprobe.audit import choice_text
from thorprobe.audit.cost import OWN_KERNEL
from thorprobe.audit.finding import On, by_gate, causes_sentence, labels_text
from thorprobe.audit.records import Choice, Cost, Gate, Proposal, Refused, Subject
from thorprobe.record import Origin

CODE = '''\
# Once per device, context (a MIG slice or green context has its own answer), k and wanted size.
def resident_cluster(wanted, k):
    """Largest built cluster size up to `wanted` of which the device can hold one; 0: none."""
    for size in (16, 8, 4, 2):
        if size > wanted:
            continue
        kernel, smem = cooperative_kernel(size, k), dynamic_smem(size)
        settings = [(MaxDynamicSharedMemorySize, smem)]
        if size > 8:
            settings.append((NonPortableClusterSizeAllowed, 1))
        # A setter that fails is the answer: shared memory (code 1), not the cluster (code 912).
        if any(cudaFuncSetAttribute(kernel, *setting) != cudaSuccess for setting in settings):
            cudaGetLastError()  # clears it, or the next launch check reports it
            continue
        launch = config(grid=(1, size, 1), block=1024, smem=smem, cluster=(1, size, 1))
        status, clusters = cudaOccupancyMaxActiveClusters(kernel, launch)
        if status == cudaSuccess and clusters >= 1:
            return size
        cudaGetLastError()
    return 0


# What the rows ask for stays as it is; what the device holds decides.
size = resident_cluster(wanted=cluster_for(num_rows), k=k)
if num_rows <= 64 and stride % 4 == 0 and size:
    cooperative_topk(..., cluster_size=size)
else:
    persistent_topk(...)'''
"""Our own pseudo-Python; the names of CUDA's calls are shortened as little as can be read."""

_WHY = (
    "cooperative_topk picks its cluster size from the number of rows and from the major compute "
    "capability. Whether one cluster of that size can run follows from neither: it needs a group "
    "of SMs that are scheduled together with as many SMs as the cluster has CTAs, and each CTA's "
    "shared memory must fit. Both differ between devices of one capability, and between a device "
    "and its partitions (MIG, green contexts). cudaOccupancyMaxActiveClusters answers exactly this "
    "for the kernel, bytes and size at hand."
)
_ASK = (
    "Ask instead of comparing capabilities, and step down to the next size that is built before "
    "giving the rows to persistent_topk. The answer holds for a context, so it is asked once for "
    "each, not once for the process. It also makes the launch check's two meanings tell "
    "themselves apart: a setter that fails is about shared memory, no resident cluster is about "
    "the device."
)


def proposal(
    on: On,
    gates: Sequence[Gate],
    subjects: Sequence[Subject],
    causes: Mapping[str, Mapping[str, Refused]],
    costs: Sequence[Cost] = (),
    *,
    choices: Sequence[Choice] = (),
) -> Proposal:
    """Return the text: why, what each gate was found to decide wrongly, why, and what to ask.

    ``causes`` are by subject. Every number in it comes from the audit.
    """
    return Proposal(
        paragraphs=(
            _WHY,
            *_found(on, gates, subjects),
            *_refused(subjects, causes),
            *_basis(subjects),
            *_times(subjects, costs),
            *choice_text.sentences(choices, gates, subjects),
            _ASK,
            *_fastest(subjects, costs),
        ),
        code=CODE,
    )


def _found(on: On, gates: Sequence[Gate], subjects: Sequence[Subject]) -> Iterator[str]:
    for status, heading in (("shipped", "As shipped"), ("proposed", "As proposed")):
        parts = by_gate(on, [gate for gate in gates if gate.status == status], subjects)
        if parts:
            yield f"{heading}. {'. '.join(parts)}."
    own = [gate.name for gate in gates if gate.status == "thorprobe"]
    right = [
        subject
        for subject in subjects
        if not any(
            on[subject.name][name].false_accepts or on[subject.name][name].false_rejects
            for name in own
        )
    ]
    if own and len(right) == len(subjects):
        seen = [s.label for s in right if s.origin is not Origin.PREDICTED]
        told = [s.label for s in right if s.origin is Origin.PREDICTED]
        grounds = [
            *([f"by the driver's own answers on {labels_text(seen)}"] if seen else []),
            *([f"by the rule that the model goes by on {labels_text(told)}"] if told else []),
        ]
        yield (
            f"Asking cudaOccupancyMaxActiveClusters decides no row wrongly: {'; '.join(grounds)}."
        )


def _times(subjects: Sequence[Subject], costs: Sequence[Cost]) -> Iterator[str]:
    """Say what the kept-out arms take in upstream's own kernel, and what is not known."""
    lost = [cost for cost in _upstream(costs) if cost.gates]
    if not lost:
        return
    labels = {subject.name: subject.label for subject in subjects}
    # The most rows of each arm stand for it.
    last = {(cost.subject, cost.cluster): cost for cost in lost}
    told: dict[str, list[str]] = {}
    for cost in last.values():
        other = f" ({cost.other}: {cost.other_us:.1f} us)" if cost.other_us is not None else ""
        told.setdefault(labels[cost.subject], []).append(
            f"{cost.rows} rows {cost.arm_us:.1f} us at {cost.cluster} CTAs{other}"
        )
    parts = [f"on {label} {', '.join(times)}" for label, times in told.items()]
    yield (
        f"What the kept-out arms take ({lost[0].kernel}, k {lost[0].k}, {lost[0].columns:,} "
        f"columns): {'; '.join(parts)}. What persistent_topk takes there is not on record, so the "
        "loss against it is not established."
    )


def _fastest(subjects: Sequence[Subject], costs: Sequence[Cost]) -> Iterator[str]:
    found = max(_upstream(costs), key=lambda c: c.arm_us / c.best_us, default=None)
    if found is not None and found.cluster != found.best_cluster:
        label = next(s.label for s in subjects if s.name == found.subject)
        yield (
            "The largest resident size is not always the fastest: where few clusters fit at once, "
            "waves decide. On "
            f"{label} {found.rows} rows took {found.arm_us:.1f} us at {found.cluster} CTAs and "
            f"{found.best_us:.1f} us at {found.best_cluster} ({found.kernel}). The number of "
            "clusters that the query answers tells the waves."
        )


def _upstream(costs: Sequence[Cost]) -> list[Cost]:
    return [cost for cost in costs if cost.kernel != OWN_KERNEL]


def _basis(subjects: Sequence[Subject]) -> Iterator[str]:
    """Say which subjects nothing was launched on, and which only stand in for another."""
    predicted = [s.label for s in subjects if s.origin is Origin.PREDICTED]
    if predicted:
        yield f"Nothing was launched on {labels_text(predicted)}: these are predictions of a model."
    others = [s for s in subjects if s.capability != s.device.capability]
    if others:
        yield (
            f"{labels_text([s.label for s in others])}: a partition or device that stands in, "
            "dispatched as for the capability named; it is no measurement of another device."
        )


def _refused(
    subjects: Sequence[Subject], causes: Mapping[str, Mapping[str, Refused]]
) -> Iterator[str]:
    told: dict[str, list[str]] = {}
    for subject in subjects:
        if causes.get(subject.name):
            told.setdefault(causes_sentence(causes[subject.name]), []).append(subject.label)
    if told:
        parts = [f"on {labels_text(labels)} {text}" for text, labels in told.items()]
        apart = ". Each cause has its own code, and a fix for one says nothing of the other"
        yield f"Why: {'. '.join(parts)}{apart if len(told) > 1 else ''}."
