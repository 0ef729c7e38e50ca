"""The command `holdfast completion`: the script with which a shell completes commands and options.

The shell runs `holdfast` to complete a word. That imports neither the engine nor an application's code.
"""

import click
from click.shell_completion import get_completion_class

from holdfast.hosts.cli.console import Screen, screen_options
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits

PROGRAM = "holdfast"
VARIABLE = "_HOLDFAST_COMPLETE"
"""What the script sets for the program to complete a word: click's name for it."""


@click.command("completion", epilog=exits(Exit.OK, Exit.USAGE))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish")
@screen_options
def completion_command(*, screen: Screen, shell: str) -> None:
    """Write the script with which a shell completes the names of commands and options.

    In ~/.bashrc: eval "$(holdfast completion bash)". In ~/.zshrc, after compinit: eval "$(holdfast completion zsh)".
    In ~/.config/fish/config.fish: holdfast completion fish | source.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise CliError(Exit.USAGE, "completion", f"this version of click has no completion for {shell}")
    script = kind(click.Group(PROGRAM), {}, PROGRAM, VARIABLE).source()
    if screen.as_json:
        screen.data({"shell": shell, "script": script})
    else:
        screen.document(f"{script}\n")
