"""The command line: ``python -m training {describe,recipes,run,worker,nursery,controller,lighthouse,leftover}``.

Only ``describe``, ``recipes`` and ``run`` are for people; the members' commands come from ``describe``.
Mistakes give one line on stderr and exit status 64. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import argparse
import logging
import sys
from typing import Any, NoReturn

import msgspec

from training import recipes, workload
from training.settings import Job, UserError, description, setting_types

EXIT_BAD_INPUT = 64


class Parser(argparse.ArgumentParser):
    """argparse that says a mistake in one line and exits with our status."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; type {self.prog} --help")


def parser() -> Parser:
    """All commands and their options."""
    top = Parser(prog="python -m training", description=__doc__.partition("\n")[0])
    commands = top.add_subparsers(dest="command", required=True, parser_class=Parser)

    job = Parser(add_help=False)
    job.add_argument("--recipe", default="cpu-debug")
    job.add_argument("--replicas", type=int, default=3)
    job.add_argument("--min-replicas", type=int, default=None, help="default: one less than the replicas, at least 1")
    job.add_argument("--steps", type=int, default=200, help="committed updates")
    job.add_argument("--seed", type=int, default=None)
    job.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="see `recipes`")
    me = Parser(add_help=False)
    me.add_argument("--name", required=True)
    me.add_argument("--incarnation", type=int, required=True)
    me.add_argument("--events", required=True)

    commands.add_parser("describe", parents=[job], help="print the workload as JSON")
    listing = commands.add_parser("recipes", help="list recipes and settings")
    listing.add_argument("--json", action="store_true")
    run = commands.add_parser("run", parents=[job], help="run the job here, as plain processes on loopback")
    run.add_argument("--out", default=None, help="folder for events and logs; default runs/TIME-RECIPE")
    place = Parser(add_help=False)
    for option in ("--address", "--host", "--data-interface", "--scratch"):
        place.add_argument(option, required=True)
    worker = commands.add_parser("worker", parents=[me, place], help="main process of a replica")
    worker.add_argument("--controller", required=True)
    worker.add_argument("--recipe", default="cpu-debug")
    worker.add_argument("--nursery", action="store_true", help="import what trainers need, for them to be forked")
    nursery = commands.add_parser("nursery", help="what a worker forks its trainers from")
    nursery.add_argument("--recipe", required=True)
    nursery.add_argument("--door", type=int, required=True)
    controller = commands.add_parser("controller", parents=[me, job], help="main process of the controller")
    controller.add_argument("--bind", required=True)
    controller.add_argument("--lighthouse", default=None, help="HOST:PORT; absent: the lighthouse runs in here")
    lighthouse = commands.add_parser("lighthouse", parents=[me, job], help="main process of the lighthouse")
    lighthouse.add_argument("--bind", required=True)
    leftover = commands.add_parser("leftover", parents=[me, place, job], help="a trainer of another job")
    leftover.add_argument("--lighthouse", required=True)
    return top


def job_of(options: argparse.Namespace) -> Job:
    """The job from the common options."""
    least = max(1, options.replicas - 1) if options.min_replicas is None else options.min_replicas
    return recipes.make_job(
        options.recipe,
        replicas=options.replicas,
        min_replicas=least,
        steps=options.steps,
        seed=options.seed,
        changes=options.set,
    )


def list_recipes(as_json: bool) -> str:
    """The recipes with a sentence each; for people, the settings too."""
    if as_json:
        listed = [{"name": recipe.name, "sentence": recipe.sentence} for recipe in recipes.RECIPES.values()]
        return msgspec.json.encode(listed).decode()
    lines = [f"{recipe.name:22} {recipe.sentence}" for recipe in recipes.RECIPES.values()]
    lines += ["", "settings, for --set KEY=VALUE (defaults of cpu-debug):"]
    defaults: Any = recipes.find("cpu-debug").defaults
    for name, annotated in setting_types().items():
        lines.append(f"  {name}={getattr(defaults, name)}".ljust(34) + f" {description(annotated)}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run one command; gives the exit status."""
    try:
        options = parser().parse_args(arguments)
        return run_command(options)
    except UserError as error:
        print(f"training: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT


def run_command(options: argparse.Namespace) -> int:
    """The command that was asked for."""
    match options.command:
        case "describe":
            print(msgspec.json.encode(workload.describe(job_of(options))).decode())
        case "recipes":
            print(list_recipes(options.json))
        case "run":
            from training import launch

            return launch.main(job_of(options), options.out)
        case _:
            run_member(options)
    return 0


def run_member(options: argparse.Namespace) -> None:
    """The main process of a member; it ends by itself or by a signal."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S", level=logging.WARNING)
    logging.getLogger("training").setLevel(logging.INFO)
    if options.command == "worker":
        recipes.require_device(options.recipe)
        from training import worker

        worker.main(
            name=options.name,
            incarnation=options.incarnation,
            address=options.address,
            host=options.host,
            data_interface=options.data_interface,
            controller=options.controller,
            events=options.events,
            scratch=options.scratch,
            nursery_of=options.recipe if options.nursery else None,
        )
    elif options.command == "nursery":
        from training import nursery

        nursery.main(recipe=options.recipe, door=options.door)
    elif options.command == "leftover":
        from training import leftover

        leftover.main(
            name=options.name,
            incarnation=options.incarnation,
            address=options.address,
            host=options.host,
            data_interface=options.data_interface,
            lighthouse=options.lighthouse,
            events=options.events,
            scratch=options.scratch,
            job=job_of(options),
        )
    elif options.command == "controller":
        from training import controller

        controller.main(
            name=options.name,
            incarnation=options.incarnation,
            bind=options.bind,
            lighthouse_address=options.lighthouse,
            events_path=options.events,
            job=job_of(options),
        )
    else:
        from training import lighthouse

        job = job_of(options)
        lighthouse.main(
            name=options.name,
            incarnation=options.incarnation,
            bind=options.bind,
            events_path=options.events,
            min_replicas=job.min_replicas,
            settings=job.settings,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
