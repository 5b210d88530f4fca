# SPDX-License-Identifier: Apache-2.0
"""Untrusted text made safe: a document may come from a file that someone sent.

Device names, driver sentences, notes and arguments are data. None of them may move the cursor,
change a colour, open an HTML tag, end a table cell or start a workflow command.
"""

import re
import unicodedata
from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath
from shlex import join

# ECMA-48 sequences: CSI with its parameters, strings up to BEL or ST, then any other ESC pair.
_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[P\]X^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_SPACES = re.compile(r" {2,}")
_MARKDOWN = re.compile(r"([\\`*\[\]|~$#])|(?<!\w)(_)|(_)(?!\w)")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def plain(text: str) -> str:
    """Return one line of printable text: no ANSI sequence, control or invisible character."""
    bare = _ANSI.sub("", text)
    spaced = "".join(
        " " if char in "\t\r\n\v\f\x85\u2028\u2029" else char
        for char in bare
        if char in "\t\r\n\v\f\x85\u2028\u2029" or unicodedata.category(char) not in _UNPRINTABLE
    )
    return _SPACES.sub(" ", spaced).strip()


def markdown(text: str) -> str:
    """Return ``text`` as inline markdown that shows exactly its own characters.

    An underscore inside a word stays: CommonMark gives it no meaning there, and driver names are
    full of them.
    """
    escaped = _MARKDOWN.sub(lambda match: "\\" + match.group(0), plain(text))
    return "".join(_ENTITIES.get(char, char) for char in escaped)


def code(text: str) -> str:
    """Return ``text`` as an inline code span whose fence is longer than any run inside it."""
    body = plain(text).replace("|", "\\|")
    fence = "`" * (_longest_run(body) + 1)
    pad = " " if body.startswith("`") or body.endswith("`") or not body else ""
    return f"{fence}{pad}{body}{pad}{fence}"


def fenced(text: str, language: str = "") -> str:
    """Return ``text`` (lines kept) as a fenced block that its content cannot close."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def command(text: str) -> str:
    """Return ``text`` as the data of a GitHub workflow command."""
    return plain(text).replace("%", "%25")


def property_value(text: str) -> str:
    """Return ``text`` as a property of a GitHub workflow command, such as its title."""
    return command(text).replace(":", "%3A").replace(",", "%2C")


def json_text(encoded: bytes) -> str:
    """Return JSON in which every invisible character is an escape; its value is unchanged.

    msgspec escapes the C0 controls; C1, DEL and the bidirectional marks stay raw, and occur inside
    strings only, where an escape means the same.
    """
    return "".join(
        char if char == "\n" or unicodedata.category(char) not in _UNPRINTABLE else _escape(char)
        for char in encoded.decode()
    )


def command_line(command_name: str, argv: Sequence[str]) -> str:
    """Return the command to paste, every path cut to its last part: no local path is shown."""
    words = [_without_folder(plain(word)) for word in argv]
    if words and words[0] in {"thorprobe", "__main__.py"}:
        words = words[1:]
    return join(["thorprobe", *(words or [plain(command_name)])])


def _without_folder(word: str) -> str:
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    name = PurePosixPath(PureWindowsPath(value).name if "\\" in value else value).name
    return f"{option}{equals}{name}" if value else word


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
