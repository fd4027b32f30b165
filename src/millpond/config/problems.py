"""What is wrong with a configuration: problems with their places, the nearest known names, one error for all."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

from attrs import frozen

from millpond.config.model import KeyPath, Origin
from millpond.config.values import HIDDEN
from millpond.errors import ConfigError, PluginError

_SECRET_KEY = re.compile(
    r"password|passwd|passphrase|secret|token|credential|api_?key|access_?key|private_?key|account_?key|sasl_?jaas|connection_?string",
    re.IGNORECASE,
)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_USER_INFO = re.compile(r"(?<=://)[^/@\n]+(?=@)")
_SHORTEST_TO_REPLACE = 4


@frozen
class Problem:
    """
    One thing to correct.

    Attributes:
        path: The key that it is about.
        text: What was found, and what was expected or what to do.
        origin: Where the key was set; None until that is looked up.
        error: The plugin's error, where a plugin is at fault.
    """

    path: KeyPath
    text: str
    origin: Origin | None = None
    error: PluginError | None = None

    def __str__(self) -> str:
        place = "configuration" if self.origin is None else str(self.origin)
        return f"{place}: {show_path(self.path)}: {self.text}" if self.path else f"{place}: {self.text}"


class ConfigProblemsError(ConfigError):
    """
    A configuration with problems; its text has a line for each.

    Attributes:
        problems: All of them, in the order of their places.
    """

    def __init__(self, text: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(text)
        self.problems = problems


class PluginProblemsError(ConfigProblemsError, PluginError):
    """A configuration all of whose problems are plugins'."""


def show_path(path: KeyPath) -> str:
    """Write *path* as the operator would: ``stores.orders.backup[1]``; a key that needs quotes gets them."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            shown += ("." if shown else "") + (part if _PLAIN_KEY.fullmatch(part) else f'"{part}"')
    return shown


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Give ``, did you mean "…"?`` with the nearest of *known*, or nothing."""
    near = nearest(name, known)
    return "" if near is None else f', did you mean "{near}"?'


def nearest(name: str, known: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str | None:
    """Give the name in *known* that *name* most likely means; *synonyms* map words from elsewhere to known ones."""
    words = {word.lower(): word for word in known}
    words |= {
        wrong: right for wrong, right in (synonyms or {}).items() if right in words.values() and wrong not in words
    }
    near = get_close_matches(name.lower(), words, n=1, cutoff=0.7)
    return words[near[0]] if near else None


def is_secret_key(key: str | int) -> bool:
    """Tell whether a key's name says that its value is a secret."""
    return isinstance(key, str) and _SECRET_KEY.search(key) is not None


def hide_user_info(text: str) -> str:
    """Hide the ``user:password`` of each URL in *text*."""
    return _USER_INFO.sub(HIDDEN, text)


def hide(text: str, secrets: Iterable[str]) -> str:
    """
    Take every secret out of *text*.

    One that is too short to be told from ordinary words is taken out only where it stands in quotes.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        for shown in {secret, repr(secret)[1:-1]}:
            if len(shown) >= _SHORTEST_TO_REPLACE:
                text = text.replace(shown, HIDDEN)
            elif shown:
                text = text.replace(f"'{shown}'", HIDDEN).replace(f'"{shown}"', HIDDEN)
    return hide_user_info(text)


def shows_secret(error: BaseException, secrets: Collection[str]) -> bool:
    """Tell whether *error*, or one that it is chained to, would show a secret in a traceback."""
    seen: BaseException | None = error
    while seen is not None:
        if hide(str(seen), secrets) != str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def error_for(problems: Collection[Problem], secrets: Collection[str]) -> ConfigProblemsError:
    """Make the one error that reports *problems*, without any of *secrets* in its text."""
    clean = tuple(
        Problem(tuple(_hide_part(p, secrets) for p in problem.path), hide(problem.text, secrets), problem.origin, None)
        for problem in problems
    )
    lines = [str(problem) for problem in clean]
    text = lines[0] if len(lines) == 1 else f"{len(lines)} problems:\n" + "\n".join(f"  {line}" for line in lines)
    plugin_errors = [problem.error for problem in problems if problem.error is not None]
    kind = PluginProblemsError if len(plugin_errors) == len(problems) else ConfigProblemsError
    return kind(text, clean)


def _hide_part(part: str | int, secrets: Collection[str]) -> str | int:
    return hide(part, secrets) if isinstance(part, str) else part
