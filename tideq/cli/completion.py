"""`tideq completion`: the completion script of a shell."""

from typing import Literal

from tideq.cli.output import print_line


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the completion script: put `source <(tideq completion bash)` into your ~/.bashrc.

    Parameters
    ----------
    shell
        The shell to print it for.
    """
    # Imported here because `commands` imports this module.
    from tideq.cli.commands import app

    print_line(app.generate_completion(shell=shell))
