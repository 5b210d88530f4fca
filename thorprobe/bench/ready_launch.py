# SPDX-License-Identifier: Apache-2.0
"""A launch of a bench: prepared with every question of a probe, then made many times."""

from cuda.bindings import driver

from thorprobe.bench.candidates import NotTakenError
from thorprobe.driver.context import answer, describe
from thorprobe.driver.launch import Launch
from thorprobe.errors import ThorprobeError
from thorprobe.record import DriverCall


class ReadyLaunch(Launch):
    """A launch whose attributes are set once, and that is then made many times."""

    def ready(self) -> "ReadyLaunch":
        """Set attributes and ask what fits. Raises NotTakenError where nothing does."""
        seen = self.query()
        if not seen.max_active:
            failed = next((call for call in self.calls if call.code), None)
            raise NotTakenError(f"max_active_clusters is 0{_because(failed)}")
        self._ready = self._config()
        return self

    def __call__(self) -> None:
        """Launch. Raises ThorprobeError where the driver refuses."""
        result = driver.cuLaunchKernelEx(self._ready, self._function, self.parameters, 0)
        code, _ = answer(result)
        if code:
            raise ThorprobeError(f"cuLaunchKernelEx answered {code} {' '.join(describe(code))}")


def _because(failed: DriverCall | None) -> str:
    if failed is None:
        return ""
    return f": {failed.call} {failed.detail}".rstrip() + f" answered {failed.code} {failed.name}"
