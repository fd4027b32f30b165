"""A group whose commands are imported when they are called, and which turns errors into lines and exit codes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from millpond.cli.exits import CHANGED, INTERRUPTED, end_quietly, is_debugging, tell


class LazyGroup(click.Group):
    """Knows its commands by name and help; ``millpond.cli.<name>`` (``_`` for ``-``) has the attribute ``command``."""

    def __init__(self, *args: Any, commands_by_name: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        """Take the help of each command by its name."""
        super().__init__(*args, **kwargs)
        self._helps = dict(commands_by_name or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names of all commands, sorted."""
        return sorted(self._helps)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command *cmd_name*; None if there is none."""
        if cmd_name not in self._helps:
            return None
        command: click.Command = import_module(f"millpond.cli.{cmd_name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self._helps.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what goes wrong becomes two or three lines and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            done = ctx.find_root().meta.get(CHANGED, "nothing was changed")
            click.echo(f"millpond: interrupted; {done}", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            ctx.exit(end_quietly())
        except Exception as error:
            if is_debugging(ctx):
                raise
            ctx.exit(tell(error))
