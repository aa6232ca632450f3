"""The one exception that a user's mistake raises."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake of the caller, told in one sentence.

    The sentence names the file or field, the value found and what would be accepted.
    The command line prints it without a traceback and exits with status 2.
    """
