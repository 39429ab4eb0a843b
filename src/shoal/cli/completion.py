"""`shoal completion`: what a shell needs to complete commands and options."""

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the completion script of a shell.

    For bash: source <(shoal completion bash). For zsh: put it as _shoal into a folder of fpath. For
    fish: shoal completion fish | source.

    Parameters
    ----------
    shell
        The shell.
    """
    from shoal.cli.app import app_named

    print(app_named("shoal").generate_completion(shell=shell))
