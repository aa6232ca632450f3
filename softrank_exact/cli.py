"""The command line, assembled from the entry points of the group ``softrank.commands``.

Each package brings its verbs with a function ``register(app)``. Packages are imported only until
the verb in question is found, the exact ones first: checking a certificate never loads torch.

Exit codes: 0 all verified; 1 something not verified; 2 usage, or no certificate; 4 malformed;
70 the checkers disagree, or an internal error; 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from io import TextIOWrapper

import typer

from .display import note
from .errors import UserError
from .plugins import Unavailable, load
from .selftest import SelfTestFailure

GROUP = "softrank.commands"
USAGE, INTERNAL, INTERRUPTED = 2, 70, 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. A user's mistake is one sentence."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, TextIOWrapper):
        # Any terminal can then print any file's name.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(given)
        sys.stdout.flush()
    except UserError as error:
        note(f"softrank: {error}")
        return USAGE
    except SelfTestFailure as error:
        note(f"softrank: {error}")
        return INTERNAL
    except OSError as error:
        note(f"softrank: {error}")
        return INTERNAL
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 (reported, and never a success)
        traceback.print_exception(error)
        note(f"softrank: internal error ({type(error).__name__}); please report the lines above")
        return INTERNAL
    if code == INTERRUPTED:
        note("softrank: interrupted")
    return code


def _run(arguments: list[str]) -> int:
    verb = next((word for word in arguments if not word.startswith("-")), None)
    app, absent = assemble(verb)
    if verb is not None and verb not in verbs(app) and absent:
        raise UserError(f"no command {verb!r} here; {'; '.join(absent)}")
    if verb is None and "--version" not in arguments:
        for sentence in absent:
            note(f"softrank: {sentence}")
    try:
        app(arguments, prog_name="softrank")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def assemble(verb: str | None) -> tuple[typer.Typer, list[str]]:
    """The application with this verb, or with every verb; and what could not be imported.

    The verbs of this package come first, then an entry point named as the verb, then the others.
    """
    app = typer.Typer(
        name="softrank",
        help="Brackets L <= r_eps(A) <= U of softmax attention, certified in exact arithmetic.",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    absent: list[str] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: _order(entry, verb)):
        if verb in verbs(app):
            break
        try:
            load(entry)(app)
        except Unavailable as missing:
            absent.append(f"package {entry.module.partition('.')[0]} {missing}")
    return app, absent


def verbs(app: typer.Typer) -> set[str]:
    """The names of the commands and groups registered so far."""
    commands = {
        command.name or (command.callback.__name__ if command.callback else "")
        for command in app.registered_commands
    }
    return commands | {str(group.name) for group in app.registered_groups}


def _order(entry: EntryPoint, verb: str | None) -> tuple[bool, bool, str]:
    exact = entry.module.partition(".")[0] == "softrank_exact"
    return not exact, entry.name != verb, entry.name
