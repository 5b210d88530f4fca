# SPDX-License-Identifier: Apache-2.0
"""A TOML data file that ships in a folder of the package, or that a user gives by its path."""

from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import msgspec

from thorprobe.errors import UsageError

T = TypeVar("T")

LARGEST = 65_536
"""Most bytes of a data file; the shipped ones have a few thousand."""


class Folder:
    """The data files of one kind, such as the gates under ``thorprobe/plan/gates``."""

    def __init__(self, kind: str, *place: str) -> None:
        """``kind`` is the noun that messages use; ``place`` is the folder below ``thorprobe``."""
        self.kind = kind
        self.place = "/".join(("thorprobe", *place))
        self._folder = files("thorprobe").joinpath(*place)

    def names(self) -> tuple[str, ...]:
        """Names of the shipped files without their suffix, sorted."""
        found = (entry.name for entry in self._folder.iterdir())
        return tuple(sorted(n.removesuffix(".toml") for n in found if n.endswith(".toml")))

    def load(self, name: str, kind: type[T]) -> T:
        """Read the shipped file of that name, or the file at that path (ending in ``.toml``).

        Raises UsageError: unknown name, unreadable or oversized file, or one outside the schema.
        """
        try:
            return msgspec.toml.decode(self.read(name), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(
                f"{self.kind} file {name} does not fit the schema: {error}",
                f"{self.place}/ has examples",
            ) from error

    def read(self, name: str) -> bytes:
        """Return the bytes of that file; see ``load``."""
        known = self.names()
        if name in known:
            return self._folder.joinpath(f"{name}.toml").read_bytes()
        if not name.endswith(".toml"):
            raise UsageError(
                f"unknown {self.kind} `{name}`", f"the known ones are {', '.join(known)}"
            )
        try:
            with Path(name).open("rb") as file:
                raw = file.read(LARGEST + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"{self.kind} file {name} cannot be read: {reason}",
                "give the path of a readable .toml file",
            ) from error
        if len(raw) > LARGEST:
            raise UsageError(
                f"{self.kind} file {name} has more than {LARGEST:,} bytes",
                f"it is a short TOML file; {self.place}/ has examples",
            )
        return raw
