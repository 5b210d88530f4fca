# SPDX-License-Identifier: Apache-2.0
"""Devices that tests speak of: an H200, with the limits measured on 2026-11-30, and a Thor."""

from thorprobe.record import Claim, Device, Limits

LIMITS = Limits(
    max_smem_per_block_optin=232_448,
    max_smem_per_sm=233_472,
    reserved_smem_per_block=1_024,
    max_threads_per_sm=2_048,
    max_blocks_per_sm=32,
    registers_per_sm=65_536,
)
H200 = Device(name="NVIDIA H200", capability=(9, 0), sms=132, limits=LIMITS)
CLAIM = Claim(
    id="largest-cluster-8", statement="the largest is 8", source="a talk", largest_cluster=8
)
THOR = Device(
    name="NVIDIA Thor",
    capability=(11, 0),
    sms=20,
    limits=LIMITS,
    profile="thor",
    claims=(CLAIM,),
)
