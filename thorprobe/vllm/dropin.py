# SPDX-License-Identifier: Apache-2.0
"""Entry point of vLLM's plugins: an exact top-k where vLLM's own cannot launch.

vLLM calls ``register`` in every process. Unless THORPROBE_VLLM is set, that is all that happens:
this module imports ``os`` and four names. docs/vllm.md says what each mode replaces.
"""

import os

from thorprobe.vllm.dropin_variable import OFF, VARIABLE


def wanted() -> str:
    """Return what the variable says, '' where the drop-in is off."""
    value = os.environ.get(VARIABLE, "").strip()
    return "" if value.lower() in OFF else value


def register() -> None:
    """Put the drop-in in the place of vLLM's top-k operators, if the variable says so.

    Nothing is raised, so that vLLM starts whatever is found: one warning says why it is untouched.
    Called again in the same process, it changes nothing.
    """
    mode = wanted()
    if not mode:
        return
    try:
        from thorprobe.vllm.dropin_start import start

        start(mode)
    except (Exception, SystemExit) as error:  # noqa: BLE001  No plugin may keep vLLM from starting.
        _untouched(error)


def _untouched(error: BaseException) -> None:
    import contextlib

    with contextlib.suppress(Exception):
        import logging

        told = str(getattr(error, "sentence", "") or f"{type(error).__name__}: {error}")
        hint = str(getattr(error, "hint", ""))
        logging.getLogger("thorprobe.vllm").warning(
            "%s; vLLM is untouched%s", told, f" (hint: {hint})" if hint else ""
        )
