"""`tideq completion`: let the shell complete commands and options."""

from typing import Literal

from tideq.cli.output import say


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print what the shell has to know: `source <(tideq completion bash)` in your ~/.bashrc.

    Parameters
    ----------
    shell
        Which one you use.
    """
    # The command's own module: at its top this would be a circle.
    from tideq.cli.commands import app

    say(app.generate_completion(shell=shell))
