# SPDX-License-Identifier: Apache-2.0
"""The file of costs that the ladder reads, ``thorprobe/topk/costs/K.toml``, from a calibration."""

from thorprobe.bench.calibration_records import CalibrationSummary
from thorprobe.bench.fit import FACTORS

_HEAD = "# SPDX-License-Identifier: Apache-2.0\n# Written by `thorprobe bench --calibrate`.\n"


def costs_toml(found: CalibrationSummary) -> str:
    """Return the file; the same calibration gives the same bytes."""
    parts = [f"{_HEAD}device = {_text(found.device)}\nmeasured = {_text(found.measured)}\n"]
    for choice, cost in sorted(found.costs.items()):
        lines = [f"[choices.{_text(choice)}]"]
        lines += [f"{name} = {_number(getattr(cost, name))}" for name in FACTORS]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts) if found.costs else f"{parts[0]}\n[choices]\n"


def _text(text: str) -> str:
    """Return a TOML basic string; what cannot stand in one, or is not ASCII, becomes a ``?``."""
    kept = "".join(c if " " <= c <= "~" and c not in '"\\' else "?" for c in text)
    return f'"{kept}"'


def _number(value: float) -> str:
    """Return three significant digits without an exponent, as TOML reads them."""
    digits = f"{value:.12f}".rstrip("0")
    return digits + "0" if digits.endswith(".") else digits
