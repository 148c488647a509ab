"""A user's mistake: one line per problem, no traceback. And a study that was interrupted."""

import difflib
from collections.abc import Iterable, Sequence

from bermo_ray.passwords import hide_password


class UserError(Exception):
    """What the user asked for can't be done; each problem is one line: what, where, what to do.

    It is printed wherever it goes, so addresses in it lose their passwords.
    """

    def __init__(self, *problems: str) -> None:
        problems = tuple(map(hide_password, problems))
        super().__init__("\n".join(problems))
        self.problems: tuple[str, ...] = problems

    def __reduce__(self) -> tuple[type["UserError"], tuple[str, ...]]:
        # Crosses process borders (Ray) whole; the default would rebuild it from the joined text.
        return type(self), self.problems


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """One line for a name that is not in a registry, with the nearest names or, failing those, all.

    >>> unknown("fusion", "brmo", ["last", "bermo"])
    "unknown fusion 'brmo': did you mean bermo?"
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {listed(names)}"
    return f"unknown {kind} {name!r}: {hint}"


def listed(names: Sequence[str]) -> str:
    """Names for an error line: ``a, b, c``."""
    return ", ".join(names)


class StudyInterrupted(KeyboardInterrupt):
    """A study was stopped before its end; what is done is kept, and it can be resumed."""


class StudyHaltedError(UserError):
    """Something outside of a study broke it off, such as a full disk; what is done is kept, and it
    can be resumed once that is mended.

    Attributes:
        leaves_threads: Whether threads are left that wait for what will not come, so that a program
            should end without them.
    """

    leaves_threads = False
