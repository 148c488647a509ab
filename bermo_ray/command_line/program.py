"""How a program of ours ends: exit codes, and errors in the words of the command line."""

import re
import sys
from collections.abc import Callable, Iterable

from bermo_ray.errors import UserError

EXIT_MISTAKE = 2
EXIT_INTERRUPTED = 130  # the shell's own code for Ctrl-C


def run_command(main: Callable[[], object], option_names: Iterable[str] = ()) -> None:
    """Runs a program's main: a user's mistake is one line each on stderr and exit code 2."""
    try:
        main()
    except UserError as error:
        for problem in error.problems:
            print(f"error: {to_flags(problem, option_names)}", file=sys.stderr)
        sys.exit(EXIT_MISTAKE)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def to_flags(problem: str, option_names: Iterable[str]) -> str:
    """An error of the library in the words of the command line: the field that it begins with, and
    fields in backticks, become flags where there is such an option.

    >>> to_flags("data.max_length: got 3; see `data_dir`", ["max_length", "data_dir"])
    '--max-length: got 3; see --data-dir'
    """
    names = set(option_names)

    def flag(match: re.Match[str]) -> str:
        name = match["field"].rpartition(".")[2]
        return f"--{name.replace('_', '-')}{match['rest']}" if name in names else match[0]

    problem = re.sub(r"^(?P<field>[\w.]+)(?P<rest>: )", flag, problem)
    return re.sub(r"`(?P<field>\w+)`(?P<rest>)", flag, problem)
