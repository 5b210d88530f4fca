# SPDX-License-Identifier: Apache-2.0
"""Reported runs: what others saw on a device, and a measurement that contradicts it."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from thorprobe.commands import claims_check
from thorprobe.judge.claim import weigh_reported
from thorprobe.judge.claim_records import Standing
from thorprobe.plan.claim import Quantity, register
from thorprobe.plan.reported import ReportedRun, Sureness, reported
from thorprobe.record import Origin

from .test_claims import THOR, as_if_measured

RUNS = {run.id: run for run in reported()}
