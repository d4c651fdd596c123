"""Command ``probe help``: of a command, or what several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from probe.cli.options import CASE_WORDS, Words, output_options
from probe.errors import InputError, one_of

if TYPE_CHECKING:
    from probe.printing import Output

CASE = "case"


@click.command(
    cls=Words, name="help", short_help="The options of a case, or the help of a command."
)
@click.argument("topic", required=False)
@output_options
def help(topic: str | None, out: Output) -> None:
    """Prints the options of a case (`probe help case`), or the help of a command."""
    context = click.get_current_context()
    above = context.parent or context
    commands = above.command
    assert isinstance(commands, click.Group)
    if topic is None:
        text = commands.get_help(above)
    elif topic == CASE:
        text = _case(context)
    elif (found := commands.get_command(above, topic)) is not None:
        with click.Context(found, info_name=topic, parent=above) as inner:
            text = found.get_help(inner)
    else:
        todo = one_of(topic, [CASE, *commands.list_commands(above)])
        raise InputError("topic", topic, "there is no help for it", todo)
    if out.as_json:
        out.give({"topic": topic, "text": text}, lambda: "")
    else:
        click.echo(text)


def _case(context: click.Context) -> str:
    """Returns the options of a case, as every command takes them."""
    formatter = context.make_formatter()
    formatter.write_text(
        "A case is one operation with its sizes and operands. Every command that takes a case "
        "takes these options, or --case FILE.json, or both: options override the file."
    )
    with formatter.section("Options of a case"):
        formatter.write_dl(
            [
                (f"--{name.replace('_', '-')} {shown}", about)
                for name, (shown, about) in CASE_WORDS.items()
            ]
        )
    return formatter.getvalue().rstrip()
