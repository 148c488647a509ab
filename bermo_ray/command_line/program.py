"""How a program of ours ends: exit codes, and errors in the words of the command line."""

import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType

from bermo_ray.errors import StudyHaltedError, UserError
from bermo_ray.passwords import hide_password
from bermo_ray.tracking.addresses import take_password

EXIT_ALL_FAILED = 1  # no trial of a study came to its end
EXIT_MISTAKE = 2
EXIT_BROKEN_PIPE = 141  # the shell's own code for it
EXIT_INTERRUPTED = 130  # the shell's own code for Ctrl-C


def run_command(main: Callable[[], object], options: Mapping[str, str] | None = None) -> None:
    """Runs a program's main: a user's mistake is one line each on stderr and exit code 2.

    ``options``: fields that errors may name, and the options that set them.
    """
    # Before anything can print or record them.
    sys.argv = [sys.argv[0], *map(take_password, sys.argv[1:])]
    sys.excepthook = _print_traceback
    try:
        main()
    except UserError as error:
        for problem in error.problems:
            print(f"error: {to_flags(problem, options or {})}", file=sys.stderr)
        if isinstance(error, StudyHaltedError) and error.leaves_threads:
            sys.stdout.flush()
            os._exit(EXIT_MISTAKE)
        sys.exit(EXIT_MISTAKE)
    except BrokenPipeError:  # whoever read the output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_BROKEN_PIPE)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _print_traceback(
    kind: type[BaseException], error: BaseException, where: TracebackType | None
) -> None:
    """A bug's traceback, without passwords that a library put into its error."""
    text = "".join(traceback.format_exception(kind, error, where))
    print(hide_password(text), end="", file=sys.stderr)


def to_flags(problem: str, options: Mapping[str, str]) -> str:
    """An error of the library in the words of the command line: the field that it begins with, and
    fields in backticks, become the options that set them. A field is looked up by its full name
    first, then by the last part of it.

    >>> options = {"max_length": "max_length", "layer_drop.count": "counts"}
    >>> to_flags("data.max_length: got 3; see `max_length`", options)
    '--max-length: got 3; see --max-length'
    >>> to_flags("layer_drop.count: got 9", options)
    '--counts: got 9'
    """

    def flag(match: re.Match[str]) -> str:
        field = match["field"]
        option = options.get(field) or options.get(field.rpartition(".")[2])
        return f"--{option.replace('_', '-')}{match['rest']}" if option else match[0]

    problem = re.sub(r"^(?P<field>[\w.]+)(?P<rest>: )", flag, problem)
    return re.sub(r"`(?P<field>[\w.]+)`(?P<rest>)", flag, problem)
