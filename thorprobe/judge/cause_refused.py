# SPDX-License-Identifier: Apache-2.0
"""Why one launch was refused with 912 or with 1, by the table of rules and the driver's log.

The rules are those that predictions use (``model.launch_rules``); what the driver says itself, and
what it does not say, decides where they leave several.
"""

import re

import msgspec

from thorprobe.driver.code import INVALID_CLUSTER_SIZE, INVALID_VALUE
from thorprobe.judge.driver_log import GRID, SHARED_MEMORY, matters, quote
from thorprobe.model.launch_facts import NO_CLUSTER, LaunchFacts, of_launch
from thorprobe.model.launch_rules import holding
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import PORTABLE_CLUSTER, Device, LaunchSpec, Outcome

_DEVICE = "larger-than-any-gpc"

_CLUSTER_MISUSE = frozenset(
    {"required-cluster-mismatch", "non-portable-not-enabled", "grid-not-divisible"}
)
_VALUE_MATTERS = {
    "block-too-large": "block-too-large",
    "smem-over-optin": SHARED_MEMORY,
    "smem-limit-lowered": SHARED_MEMORY,
    "smem-not-opted-in": SHARED_MEMORY,
    "empty-grid": GRID,
    "grid-too-large": GRID,
}
# Causes of code 1 with the matter that the driver's log names for each.

_LIMIT = re.compile(r"MAX_DYNAMIC_SHARED_SIZE_BYTES = (\d{1,10})")


def expected_cluster(spec: LaunchSpec) -> int:
    """CTAs that the kernel should count in its own cluster, in CTAs.

    Without the attribute a kernel with compiled dimensions still gets those.
    """
    if not spec.cluster_attribute and spec.compiled_cluster:
        return spec.compiled_cluster
    return spec.cluster_size


def of_invalid_cluster(outcome: Outcome, device: Device) -> tuple[str, str]:
    """Weigh code 912: return the cause and, where it is open, what is left to say."""
    misuse = _cluster_misuse(outcome, device)
    if misuse is not None:
        return misuse, ""
    named, unknown = matters(outcome)
    if named or unknown:
        return "undetermined", quote("912 for no reason in the catalogue", outcome)
    if hosted_nowhere(outcome):
        return _DEVICE, ""
    active = outcome.observed.max_active
    if active is None:
        return "undetermined", "912 with every argument in order; max active clusters not known"
    return "undetermined", f"912 although max active clusters is {active}"


def _cluster_misuse(outcome: Outcome, device: Device) -> str | None:
    """Name what is wrong with the cluster itself: as the driver says, else as the launch shows."""
    facts = launch_facts(outcome, device)
    shown = [key for key in holding(facts, INVALID_CLUSTER_SIZE) if key != _DEVICE]
    if shown and shown[0] not in _CLUSTER_MISUSE:
        return shown[0]
    said = next((key for key in matters(outcome)[0] if key in _CLUSTER_MISUSE), None)
    if said == "non-portable-not-enabled" and expected_cluster(outcome.spec) <= PORTABLE_CLUSTER:
        said = None
    return said or next(iter(shown), None)


def of_invalid_value(outcome: Outcome, device: Device) -> tuple[str, str]:
    """Weigh code 1, which a cluster alone never answers where clusters exist.

    Where the launch shows several faults, the one that the driver's log names counts.
    """
    spec = outcome.spec
    facts = list(holding(launch_facts(outcome, device), INVALID_VALUE))
    named, unknown = matters(outcome)
    agreed = [fact for fact in facts if _VALUE_MATTERS[fact] in named]
    if facts:
        return (agreed or facts)[0], ""
    if "block-too-large" in named:
        return "block-too-large", ""
    # Static shared memory counts as well and is not part of the spec.
    if SHARED_MEMORY in named and not spec.smem_opt_in:
        return "smem-not-opted-in", ""
    clusters = spec.cluster_attribute and not (named or unknown)
    if clusters and not device.limits.cluster_launch:
        return "no-cluster-launch", ""
    return "undetermined", quote("1 with every known argument in order", outcome)


def launch_facts(outcome: Outcome, device: Device) -> LaunchFacts:
    """Return what an outcome shows of its launch, for the rules that predictions use as well."""
    spec = outcome.spec
    own = spec.compiled_cluster and not is_shipped(spec.kernel)  # Shipped: asked as compiled.
    limits = [match for c in outcome.calls if not c.code and (match := _LIMIT.search(c.detail))]
    return msgspec.structs.replace(
        of_launch(spec, device.limits),
        cluster=spec.cluster if spec.cluster_attribute or not own else NO_CLUSTER,
        compiled_cluster=(1, spec.compiled_cluster, 1) if own else NO_CLUSTER,
        non_portable=spec.non_portable and not failed_setter(outcome, "NON_PORTABLE"),
        setter_limit=int(limits[-1][1]) if limits and spec.smem_opt_in else None,
        setter_code=failed_setter(outcome, "DYNAMIC_SHARED"),
    )


def hosted_nowhere(outcome: Outcome) -> bool:
    """Say whether no group hosts one cluster, on the device or on every admissible map."""
    seen = outcome.observed
    if seen.max_active is not None:
        return seen.max_active == 0
    return seen.max_active_range is not None and seen.max_active_range[1] == 0


def failed_setter(outcome: Outcome, attribute: str) -> int:
    """Return the code of the setter of a function attribute that failed, 0 where none did."""
    failed = (
        call.code
        for call in outcome.calls
        if call.code and "SetAttribute" in call.call and attribute in f"{call.call} {call.detail}"
    )
    return next(failed, 0)
