# SPDX-License-Identifier: Apache-2.0
"""Puts together what is told of one launch: options, text, a profile or a capability, a cubin."""

import re

import msgspec

from thorprobe.binary.cubin import KernelFacts
from thorprobe.binary.image import parse
from thorprobe.driver.code import FAULTS
from thorprobe.explain.asked import Asked, dims, images, stage, version
from thorprobe.explain.records import Told
from thorprobe.explain.sentence import NAMING, frameworks, hangs, heard
from thorprobe.model.capability_limits import limits_of
from thorprobe.model.launch_facts import NO_CLUSTER, LaunchFacts, volume
from thorprobe.model.occupancy import ctas_per_sm
from thorprobe.model.profile import Profile
from thorprobe.model.profile import load as load_profile
from thorprobe.record import Limits

_NUMBERS = r"\D{0,4}(\d{1,10})\s*[,x]\s*(\d{1,10})(?:\s*[,x]\s*(\d{1,10}))?"
_DIMS = {
    name: re.compile(rf"\b{name}(?:[ _]?(?:dim|dims|dimensions|size))?{_NUMBERS}", re.IGNORECASE)
    for name in ("grid", "block", "cluster")
}
_TRITON = re.compile(r"Required: *(\d{1,9}), *Hardware limit: *(\d{1,9})")
_PTXAS = re.compile(r"too much shared data \((0x[0-9a-f]{1,8}) bytes, (0x[0-9a-f]{1,8}) max")
_CTAS = re.compile(r"total_ctas *= *(\d{1,9}) *> *num_sms *\* *occupancy *= *(\d{1,9})")


def tell(asked: Asked, text: str = "", kernel: KernelFacts | None = None) -> Told:
    """Return all that is told; options count before what a text says.

    Raises UsageError for an option that is wrong, and for an unknown profile.
    """
    profile = load_profile(asked.profile) if asked.profile else None
    capability = version(asked.capability, "capability") or (
        profile.capability if profile else None
    )
    launch = _of_text(asked.launch(), text)
    launch = _of_kernel(launch, kernel)
    built_for = parse(kernel.target) if kernel else None
    limited_by = capability or (built_for.capability if built_for else None)
    launch = _of_device(launch, asked, profile, limited_by)
    told = Told(
        launch=launch,
        capability=capability,
        images=images(asked.images) or _target(kernel, asked),
        code=asked.code,
        sync_code=asked.sync_code,
        earlier_code=asked.earlier_code,
        named=stage(asked.stage),
        hung=asked.hang,
        waits=asked.waits,
        observed_cluster=asked.observed_cluster,
        observed_ctas=asked.observed_ctas,
        wrong_rows=asked.wrong_rows,
        ptx_version=version(asked.ptx_version, "ptx-version"),
        driver_version=version(asked.driver_version, "driver-version"),
    )
    return _of_sentences(told, text) if text else told


def _target(kernel: KernelFacts | None, asked: Asked) -> tuple[str, ...] | None:
    if asked.images is not None:
        return ()
    return (kernel.target,) if kernel and kernel.target else None


def _of_sentences(told: Told, text: str) -> Told:
    """Add what the sentences of a text say; a code that was given as an option stays."""
    found = heard(text)
    if not found:
        hung = told.hung or hangs(text)
        return msgspec.structs.replace(told, hung=hung)
    first = found[0].sentence
    code = told.code if told.code is not None else first.code
    named = [
        one.sentence.cause
        for one in found
        if one.sentence in NAMING and (one is found[0] or one.sentence.code == first.code)
    ]
    if told.code is not None and told.code != first.code:
        named = []
    remarks = []
    told_by = frameworks(text)
    if "torch" in told_by and first.code is not None:
        remarks.append(
            "torch may raise an error of an earlier call: the frame it names can be innocent, and "
            "CUDA_LAUNCH_BLOCKING=1 shows the call itself"
        )
    several = [one for one in found[1:] if one.sentence.code not in (None, first.code)]
    if several:
        remarks.append(f"of several errors the first counts; after it: {several[0].words}")
    said = [f"{one.sentence.speaker}: {one.words}" for one in found]
    fault = code in FAULTS and told.code is None
    return msgspec.structs.replace(
        told,
        code=None if fault else code,
        sync_code=code if fault and told.sync_code is None else told.sync_code,
        named=told.named or (tuple(named) if told.sync_code is None else ()),
        said=tuple(said),
        remarks=(*told.remarks, *remarks),
    )


def _of_text(launch: LaunchFacts, text: str) -> LaunchFacts:
    """Add the numbers that a text spells out, where no option gave them."""
    for name, words in _DIMS.items():
        match = words.search(text)
        if match and getattr(launch, name) is None:
            spelled = ",".join(part for part in match.groups() if part)
            launch = msgspec.structs.replace(launch, **{name: dims(spelled, name)})
    if match := _TRITON.search(text):
        launch = _filled(launch, dynamic_smem=int(match[1]))
    if match := _PTXAS.search(text):
        launch = _filled(launch, static_smem=int(match[1], 16))
    if match := _CTAS.search(text):
        launch = _filled(launch, grid=(int(match[1]), 1, 1), resident=int(match[2]))
    return launch


def _filled(launch: LaunchFacts, **found: object) -> LaunchFacts:
    new = {name: value for name, value in found.items() if getattr(launch, name) is None}
    return msgspec.structs.replace(launch, **new)


def _of_kernel(launch: LaunchFacts, kernel: KernelFacts | None) -> LaunchFacts:
    if kernel is None:
        return launch
    return _filled(
        launch,
        registers=kernel.registers,
        static_smem=kernel.static_smem,
        max_threads=kernel.max_threads,
        compiled_cluster=kernel.required_cluster or NO_CLUSTER,
    )


def _of_device(
    launch: LaunchFacts,
    asked: Asked,
    profile: Profile | None,
    capability: tuple[int, int] | None,
) -> LaunchFacts:
    """Add the device's limits, and what fits on it by them."""
    device = profile.device() if profile else None
    limits = device.limits if device else (limits_of(capability) if capability else None)
    if limits is not None and asked.smem_optin is not None:
        limits = msgspec.structs.replace(limits, max_smem_per_block_optin=asked.smem_optin)
    if limits is None:
        limits = _bytes_only(asked.smem_optin)
    launch = _filled(launch, limits=limits, sms=device.sms if device else None)
    if profile is not None and launch.size and launch.size > 1:
        launch = _filled(launch, hosted=profile.admissible().hosted(launch.size))
    if (launch.size or 1) > 1:  # Then groups decide, not SMs.
        least, most = launch.hosted or (0, -1)
        return _filled(launch, resident=least * (launch.size or 1)) if least == most else launch
    return _filled(launch, resident=_resident(launch))


def _bytes_only(smem_optin: int | None) -> Limits | None:
    """Return limits of a device of which only the opt-in limit is known, else those of any."""
    if smem_optin is None:
        return None
    return Limits(
        max_smem_per_block_optin=smem_optin,
        max_smem_per_sm=smem_optin + 1_024,
        reserved_smem_per_block=1_024,
        max_threads_per_sm=2_048,
        max_blocks_per_sm=32,
        registers_per_sm=65_536,
    )


def _resident(launch: LaunchFacts) -> int | None:
    """Return the CTAs that fit at once: exactly, or an upper bound that the grid exceeds."""
    limits, threads = launch.limits, launch.threads
    if limits is None or launch.sms is None or threads is None or launch.grid is None:
        return None
    kernel = KernelFacts(
        function="", registers=launch.registers or 0, static_smem=launch.static_smem or 0
    )
    most = ctas_per_sm(kernel, threads, launch.dynamic_smem or 0, limits) * launch.sms
    known = None not in (launch.registers, launch.static_smem, launch.dynamic_smem)
    return most if known or volume(launch.grid) > most else None
