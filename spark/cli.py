"""The command `edge-spark`: run a job, list the jobs, fetch the connector's jars.

Here: arguments, signals, exit status. Spark is imported only by the commands that need it.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from threading import Event

from spark.config import ConfigurationError, Settings, default_checkpoint, with_assignments
from spark.logs import log

EXAMPLE = "example: edge-spark run readings --bootstrap 192.168.1.20:9092 --set window_ms=60000"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 done, 1 failed, 2 bad usage or configuration."""
    parsed = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until a job waits for it: ends a fetch and its Ivy
    try:
        status: int = parsed.command(parsed)
        return status
    except ConfigurationError as error:
        sys.stderr.write(f"edge-spark: {error}\n")
        return 2
    except ModuleNotFoundError as error:  # an installation without Spark
        sys.stderr.write(f"edge-spark: the Python package {error.name} is missing: pip install 'drupelet[spark]'\n")
        return 2
    except KeyboardInterrupt:
        return 0


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    root = argparse.ArgumentParser(
        prog="edge-spark", description="Run PySpark streaming jobs on a site's Kafka topics.", epilog=EXAMPLE
    )
    root.add_argument("--version", action="version", version=f"%(prog)s {version('drupelet')}")
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a job until SIGTERM or SIGINT", epilog=EXAMPLE)
    run.add_argument("job", metavar="JOB", help="see `edge-spark list`")
    run.add_argument("--bootstrap", metavar="HOST:PORT", default=Settings.bootstrap, help="default: %(default)s")
    run.add_argument("--master", metavar="URL", default=Settings.master, help="Spark master; default: %(default)s")
    run.add_argument("--checkpoint", metavar="DIR", help="default: $XDG_STATE_HOME/drupelet/spark/JOB")
    run.add_argument("--set", metavar="key=value", action="append", default=[], help="a setting, see `edge-spark list`")
    run.set_defaults(command=run_job)
    listing = commands.add_parser("list", help="list the jobs and the settings", epilog="example: edge-spark list")
    listing.set_defaults(command=list_jobs)
    jars = commands.add_parser(
        "jars", help="fetch the Kafka connector, print its paths", epilog="example: edge-spark jars"
    )
    jars.set_defaults(command=print_jars)
    return root


def run_job(arguments: argparse.Namespace) -> int:
    """Run a job until it is told to stop."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from spark.failures import described  # noqa: PLC0415
    from spark.jars import connector_jars  # noqa: PLC0415
    from spark.jobs import job_named  # noqa: PLC0415 - PySpark takes a second to import
    from spark.run import JobError, run  # noqa: PLC0415
    from spark.session import JVM_GONE, start_session, stop_session  # noqa: PLC0415

    job = job_named(arguments.job)
    settings = with_assignments(settings_from(arguments), arguments.set)
    connector_jars()  # may take minutes; SIGTERM still ends them at once
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        session = start_session(settings, f"drupelet-{arguments.job}")
    except (OSError, PySparkException):
        if stop.is_set():  # the signal reached the JVM as well, before it was up
            return 0
        raise
    signal.signal(signal.SIGINT, lambda *_: stop.set())  # PySpark put a handler of its own there
    log("info", "started", job=arguments.job, bootstrap=settings.bootstrap, checkpoint=settings.checkpoint)
    try:
        run(session, job, settings, stop)
    except JobError as error:
        log("error", "job_failed", job=arguments.job, reason=error)
        return 1
    except JVM_GONE as error:
        if not stop.is_set():
            log("error", "job_failed", job=arguments.job, reason=described(error))
            return 1
    finally:
        stop_session(session)
    log("info", "stopped", job=arguments.job)
    return 0


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Take the settings that have flags of their own."""
    checkpoint = arguments.checkpoint or default_checkpoint(arguments.job)
    return replace(Settings(), bootstrap=arguments.bootstrap, master=arguments.master, checkpoint=checkpoint)


def list_jobs(_: argparse.Namespace) -> int:
    """Print the jobs, then the settings with their defaults."""
    from spark.config import SETTABLE  # noqa: PLC0415
    from spark.jobs import JOBS  # noqa: PLC0415

    for name, job in JOBS.items():
        sys.stdout.write(f"{name:10} {job.summary}\n")
    sys.stdout.write("\nsettings (--set key=value) and their defaults; also any kafka.… and spark.… option:\n")
    for key in SETTABLE:
        sys.stdout.write(f"  {key}={getattr(Settings(), key)}\n")
    return 0


def print_jars(_: argparse.Namespace) -> int:
    """Fetch the connector's jars where they are missing, and print where they are."""
    from spark.jars import connector_jars  # noqa: PLC0415

    try:
        sys.stdout.writelines(f"{jar}\n" for jar in connector_jars())
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
