"""What a command can fail with; each text is one sentence for the person who typed it."""


class UsageError(Exception):
    """Asked for in a wrong way: arguments or files. Says what was expected; exit status 2."""


class CannotError(Exception):
    """Asked for rightly, but it could not be done; exit status 1."""


class NoPlatformError(CannotError):
    """There is no platform that could be asked; exit status 3."""
