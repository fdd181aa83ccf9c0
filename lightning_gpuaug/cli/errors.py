"""What the commands mean by their exit codes, and how an error becomes one line."""

from __future__ import annotations

import difflib
import errno
import os
import re
import select
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

OK = 0
FOUND_PROBLEMS = 1
USAGE = 2
CUT_SHORT = 128 + signal.SIGPIPE
"""Nobody reads stdout any more, as behind `| head`: what a shell says of other tools then."""

# What a disk or its permissions refuse: the message names the file, wherever it was raised.
_OF_THE_MACHINE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
_PACKAGE_FOLDER = str(Path(__file__).resolve().parents[1])


class UsageError(ValueError):
    """The command line or a configuration file is wrong (exit code 2)."""


def _is_message_to_user(error: BaseException) -> bool:
    """Tell an error that this package raised on purpose from a defect or a failing environment.

    Errors for the user are the built-in kinds below, raised by this package's own lines, and what Lightning calls a
    misconfiguration, and what a disk refuses; their text is complete, so a traceback adds nothing. Everything else
    keeps its traceback.
    """
    if type(error).__name__ == "MisconfigurationException":  # Lightning's word for the same; not worth its import
        return True
    if isinstance(error, OSError) and error.filename is not None and error.errno in _OF_THE_MACHINE:
        return True
    if not isinstance(error, ValueError | OSError | RuntimeError) or error.__traceback__ is None:
        return False
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    return str(Path(raised_in).resolve()).startswith(_PACKAGE_FOLDER + os.sep)


def message_to_user_behind(error: BaseException) -> BaseException | None:
    """Return what this package told the user on purpose: `error` itself or the first cause of it that is one.

    Parsers and trainers wrap what they catch, in pages that hide the one line that matters.
    """
    cause: BaseException | None = error
    while cause is not None and not _is_message_to_user(cause):
        cause = cause.__cause__ or cause.__context__
    return cause


def one_line(message: str) -> str:
    """The key and the first thing that is wrong with it, out of jsonargparse's tree of everything it has tried.

    Messages of another form are returned as they are.
    """
    keys, problems, given = list[str](), list[str](), ""
    for raw in message.splitlines():
        line = raw.strip().removeprefix("- ")
        if line.startswith('Parser key "'):
            if not problems:
                name, _, rest = line.removeprefix('Parser key "').partition('":')
                keys.append(name)
                problems += [rest.strip()] * bool(rest.strip())
        elif line.startswith("Given value: "):
            if problems:
                given = line.removeprefix("Given value: ")
                break  # what else was tried for a key further up
        elif line and line not in _NO_PROBLEM and not line.startswith(_NO_PROBLEM_START):
            problems.append(line)
    if not keys or not problems:
        return message
    # A path is tried for every class too.
    problem = _most_telling([line for line in problems if not line.startswith(_NOT_A_PATH)] or problems, given)
    if problem.startswith(_REQUIRED):
        return f"{'.'.join([*keys, problem.removeprefix(_REQUIRED)])} is required"
    said = "ot value" in problem or given in re.split(r"[\s;]+", problem)
    if given and not said and not given.startswith(("NestedArg", "Namespace(")):
        problem = f"{problem}, got {given}"
    return f"{'.'.join(keys)}: {problem}"


def _most_telling(problems: list[str], given: str) -> str:
    """Of what each type of a union has against a value: the words of which it is a misspelling, else the first."""
    if problems[0].startswith(_REQUIRED):
        return problems[0]
    choices = [problem for problem in problems if problem.startswith("Expected a typing.Literal[")]
    near = {problem: difflib.get_close_matches(repr(given), _QUOTED.findall(problem), n=1) for problem in choices}
    for problem, words in near.items():
        if words:
            return problem
    imported = [problem for problem in problems if problem.startswith("Expected a dot import path string: ")]
    if imported:
        return f"no known class is called {given}; one of another package is given as package.module.Class"
    return problems[0]


_NO_PROBLEM = ("Errors:", "Does not validate against any of the Union subtypes", "Expected a <class 'NoneType'>")
_NO_PROBLEM_START = ("Subtypes: ", "Problem with given class_path", "Given value type: ")
_NOT_A_PATH = "Expected a path but "
_REQUIRED = "the following arguments are required: "
_QUOTED = re.compile(r"'[^']*'")


def report(command: str, message: object) -> None:
    """Write `gpuaug COMMAND: error: MESSAGE` to stderr (`command` may be empty)."""
    print(f"gpuaug{command and ' ' + command}: error: {message}", file=sys.stderr)


def run_command(command: str, body: Callable[[], int], interrupted: str | None = None) -> int:
    """Run a command; what ends it early becomes one line on stderr and an exit code.

    Where the reader of stdout has gone, the command ends without a word.

    Args:
        command: its name.
        body: parses, works, prints, and gives the exit code.
        interrupted: what to say after Ctrl-C, when something of the work is kept or not; None lets Python say it.
    """
    try:
        try:
            code = body()
        except SystemExit as stop:  # the parser has printed the help or the reason
            code = stop.code if isinstance(stop.code, int) else USAGE
        sys.stdout.flush()  # here, not when Python ends, which would tell a pipe without a reader as a failure
        return code
    except KeyboardInterrupt:
        if interrupted is None:
            raise
        report(command, interrupted)
        return FOUND_PROBLEMS
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads_stdout():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left in its buffer
            return CUT_SHORT
        message = message_to_user_behind(error)
        if message is None or os.environ.get("GPUAUG_TRACEBACK") == "1":
            raise
        report(command, message)
        return USAGE if isinstance(message, UsageError) else FOUND_PROBLEMS


def _nobody_reads_stdout() -> bool:
    """Whether stdout is a pipe without a reader; another broken pipe, to a worker say, is an error like any other."""
    try:
        stdout = sys.stdout.fileno()
    except (OSError, ValueError):  # a stand-in without a file, or closed
        return False
    poll = select.poll()
    poll.register(stdout, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
