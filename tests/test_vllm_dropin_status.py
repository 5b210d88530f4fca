# SPDX-License-Identifier: Apache-2.0
"""Doctor says whether a vLLM that starts here has the drop-in, and what keeps it from it."""

from importlib.metadata import EntryPoint

import pytest

from thorprobe.vllm import dropin_release, dropin_status
from thorprobe.vllm.dropin_variable import VARIABLE

POINT = EntryPoint("thorprobe", "thorprobe.vllm.dropin:register", dropin_status.GROUP)
OTHER = EntryPoint("thorprobe", "someone.else:register", dropin_status.GROUP)


@pytest.fixture
def here(monkeypatch):
    """Put a version of vLLM, entry points and variables into the environment."""

    def put(value, version="0.33.0", points=(POINT,), plugins=None):
        variables = {VARIABLE: value, "VLLM_PLUGINS": plugins}
        for name, held in variables.items():
            if held is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, held)

        def installed(name):
            if version is None:
                raise dropin_release.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(dropin_release.metadata, "version", installed)
        monkeypatch.setattr(dropin_status.metadata, "entry_points", lambda group: points)
        return dropin_status.status()

    return put


@pytest.mark.parametrize(
    ("options", "value", "mends"),
    [
        ({"value": None}, "off: THORPROBE_VLLM is not set; vLLM 0.33.0 is known to it", False),
        ({"value": "off", "version": "0.28.0"}, "0.28.0 is not known to it (0.29 to 0.33", False),
        ({"value": "", "version": None}, "off: THORPROBE_VLLM is not set; no vLLM is here", False),
        ({"value": "always"}, "active: THORPROBE_VLLM=always; vLLM 0.33.0 is known to it", False),
        ({"value": "Check", "plugins": "x, thorprobe"}, "active: THORPROBE_VLLM=Check", False),
        ({"value": "nonsense"}, "not active: THORPROBE_VLLM=nonsense, but the modes are", True),
        ({"value": "report", "version": None}, "but no vLLM is in this environment", True),
        ({"value": "report", "version": "0.34.0"}, "but vLLM 0.34.0 is not known to it", True),
        ({"value": "report", "points": ()}, "but no entry point of vllm.general_plugins", True),
        ({"value": "report", "points": (OTHER,)}, "but no entry point of", True),
        ({"value": "report", "plugins": "x"}, "but VLLM_PLUGINS leaves it out", True),
    ],
)
def test_each_state_is_one_line(here, options, value, mends):
    """Off, active, and each hindrance with the line that mends it."""
    told = here(**options)
    assert value in told.value
    assert bool(told.mend) is mends


def test_doctor_shows_the_line(here, main):
    """The line stands beside the gate of the installed vLLM."""
    here("nonsense")
    ran = main("doctor")
    assert "drop-in  " in ran.out
    assert "not active: THORPROBE_VLLM=nonsense" in ran.out
    assert "hint: export THORPROBE_VLLM=fallback" in ran.out
