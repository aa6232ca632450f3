"""The one way in which a file is refused before anything is judged."""

from __future__ import annotations


class Malformed(ValueError):
    """The file is no certificate; ``code`` is the reason code of docs/certificate-format.md."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
