"""The command `edge-spark`: run a job, list the jobs, fetch the connector's jars, become Spark's master or worker.

Contains: arguments, signals, exit status. Only the commands that need Spark import it.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event

from drupelet.command.arguments import Parser, whole_number
from drupelet.command.command_line import run as run_command
from drupelet.printable import printable
from spark.catalogue import SUMMARIES, listing
from spark.config import Settings, default_checkpoint, with_assignments
from spark.logs import log
from spark.streams.checkpoint import claim_checkpoint, opened_checkpoint

CLOCK_POLL_S = 1.0
CLOCK_TIMEOUT_S = 60  # systemd gives a waiting job so much more time to start
MASTER_EXAMPLE = "example: edge-spark master --host 192.168.1.20"
WORKER_EXAMPLE = "example: edge-spark worker --cores 2 --memory 1g --work-dir /var/tmp/work spark://192.168.1.20:7077"
CHECK_EXAMPLE = "example: edge-spark check --connect --bootstrap pi-1.local:9093 --set security_protocol=SSL"
EXAMPLE = "example: edge-spark run readings --bootstrap 192.168.1.20:9092 --set window_ms=60000"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 done, 1 failed, 2 bad usage or configuration."""
    return run_command("edge-spark", lambda: work(arguments), extra="spark")


def work(arguments: Sequence[str] | None) -> int:
    """Run the command that the arguments name; a stop before its job runs ends it, too."""
    parsed = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until a job handles it: ends a fetch and its Ivy
    try:
        status: int = parsed.command(parsed)
        return status
    except KeyboardInterrupt:
        if parsed.command is not run_job:
            raise
        log("info", "stopped", job=parsed.job)
        return 0


def parser() -> Parser:
    """Describe the command line."""
    root = Parser(prog="edge-spark", description="Run PySpark streaming jobs on a site's Kafka topics.", epilog=EXAMPLE)
    root.add_version()
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a job until SIGTERM or SIGINT", epilog=EXAMPLE)
    run.add_argument("job", metavar="JOB", choices=list(SUMMARIES), help="see `edge-spark list`")
    check = commands.add_parser(
        "check", help="check settings, and whether the brokers let a job in, without Java", epilog=CHECK_EXAMPLE
    )
    check.add_argument("--connect", action="store_true", help="also try the brokers")
    check.set_defaults(command=check_settings)
    for each in (run, check):
        each.add_argument("--bootstrap", metavar="HOST:PORT", default=Settings.bootstrap, help="default: %(default)s")
        each.add_argument(
            "--set", metavar="key=value", action="append", default=[], help="a setting, see `edge-spark list`"
        )
    run.add_argument("--master", metavar="URL", default=Settings.master, help="Spark master; default: %(default)s")
    run.add_argument("--checkpoint", metavar="DIR", help="default: $XDG_STATE_HOME/drupelet/spark/JOB")
    run.set_defaults(command=run_job)
    listing = commands.add_parser(
        "list",
        help="list the jobs and their settings, with units and bounds",
        epilog="example: edge-spark list windows",
    )
    listing.add_argument("job", metavar="JOB", nargs="?", choices=list(SUMMARIES), help="only this one")
    listing.set_defaults(command=list_jobs)
    jars = commands.add_parser(
        "jars", help="fetch the Kafka connector, print its paths", epilog="example: edge-spark jars"
    )
    jars.set_defaults(command=print_jars)
    add_daemons(commands)
    return root


def add_daemons(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Describe Spark's two daemons; their secret and other settings are in $SPARK_CONF_DIR/spark-defaults.conf."""
    master = commands.add_parser("master", help="become the master of a standalone cluster", epilog=MASTER_EXAMPLE)
    worker = commands.add_parser("worker", help="become a worker of a standalone cluster", epilog=WORKER_EXAMPLE)
    for each, port in ((master, 7077), (worker, 7078)):
        each.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="default: %(default)s")
        each.add_argument(
            "--port", metavar="PORT", type=whole_number(1, 65_535), default=port, help="default: %(default)s"
        )
        each.add_argument(
            "--web-port",
            metavar="PORT",
            type=whole_number(1, 65_535),
            default=port + 1003,
            help="on 127.0.0.1 only; default: %(default)s",
        )
        each.add_argument("--heap", metavar="SIZE", default="64m", help="of the daemon itself; default: %(default)s")
    worker.add_argument("master", metavar="URL", help="spark://HOST:PORT")
    worker.add_argument("--cores", metavar="N", type=whole_number(1, 4096), required=True, help="tasks at once")
    worker.add_argument("--memory", metavar="SIZE", required=True, help="heap of all executors together")
    worker.add_argument("--work-dir", metavar="DIR", required=True, help="what executors print")
    master.set_defaults(command=become_master)
    worker.set_defaults(command=become_worker)


def run_job(arguments: argparse.Namespace) -> int:
    """Run a job until a signal stops it."""
    from spark.jvm.standalone import spark_home  # noqa: PLC0415
    from spark.preflight import check_memory, checked_addresses, say_unreachable  # noqa: PLC0415
    from spark.security import security_of  # noqa: PLC0415

    settings = with_assignments(settings_from(arguments), arguments.set)
    check_memory(settings.spark)
    brokers, masters = checked_addresses(settings)
    security = security_of(settings)
    spark_home()
    with opened_checkpoint(settings, arguments.job):
        log("info", "starting", job=arguments.job, bootstrap=settings.bootstrap, checkpoint=settings.checkpoint)
        say_unreachable("broker_not_reachable", brokers, security, bootstrap=settings.bootstrap)
        say_unreachable("master_not_reachable", masters, master=settings.master)
        wait_for_clock(settings)
        return run_opened(arguments.job, settings)


def wait_for_clock(
    settings: Settings, clock: Callable[[], float] = time.time, pause: Callable[[float], None] = time.sleep
) -> None:
    """Wait until the clock is set, if a job has TLS: Java would refuse every certificate as not yet valid."""
    from spark import notify  # noqa: PLC0415
    from spark.security import waits_for_clock  # noqa: PLC0415
    from spark.wait_log import Wait  # noqa: PLC0415

    waiting = Wait("waiting_for_clock", level="warning", then="Java judges certificates by the clock: set it, or NTP")
    while waits_for_clock(settings, now_s := clock()):
        shown = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
        waiting.say(clock=shown)
        notify.notify(
            f"EXTEND_TIMEOUT_USEC={CLOCK_TIMEOUT_S * 10**6}", f"STATUS=waiting for the clock, which shows {shown}"
        )
        pause(CLOCK_POLL_S)


def check_settings(arguments: argparse.Namespace) -> int:
    """Check settings without a JVM, and with --connect the brokers; return 1 if a broker refuses the job."""
    from drupelet.kafka.connection import try_cluster  # noqa: PLC0415
    from spark.preflight import check_memory, checked_addresses  # noqa: PLC0415
    from spark.security import client_options, security_of, waits_for_clock  # noqa: PLC0415

    settings = with_assignments(replace(Settings(), bootstrap=arguments.bootstrap), arguments.set)
    check_memory(settings.spark)
    checked_addresses(settings)
    client_options(settings)
    print("settings: ok")
    if said := security_of(settings).ca_note("--set ssl_ca_file"):
        print(f"WARNING: {printable(said)}.", file=sys.stderr)
    if waits_for_clock(settings, time.time()):
        print("WARNING: this host's clock is not set: a job with TLS waits for it.", file=sys.stderr)
    well = True
    for end in try_cluster("kafka", security_of(settings), settings.bootstrap.split(",")) if arguments.connect else ():
        well = well and end.trouble is None
        print(end.line, flush=True)
    return 0 if well else 1


def run_opened(name: str, settings: Settings) -> int:
    """Run a job whose checkpoint is open."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from spark import notify  # noqa: PLC0415
    from spark.jobs import JOBS  # noqa: PLC0415 - PySpark takes a second to import
    from spark.jvm.failures import sentence  # noqa: PLC0415
    from spark.jvm.jars import connector_jars  # noqa: PLC0415
    from spark.run import JobError, run  # noqa: PLC0415
    from spark.session import JVM_GONE, StoppedError, start_session, stop_session  # noqa: PLC0415

    connector_jars()  # may take minutes; SIGTERM still ends them at once
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stop.set())
    try:
        session = start_session(settings, f"drupelet-{name}", stop)
    except StoppedError:
        log("info", "stopped", job=name)
        return 0
    except (*JVM_GONE, PySparkException) as error:
        log("error", "job_failed", job=name, reason=sentence(error))
        return 1
    notify.notify("READY=1", "STATUS=started")
    log("info", "started", job=name, bootstrap=settings.bootstrap, checkpoint=settings.checkpoint)
    try:
        claim_checkpoint(settings, name)
        run(session, JOBS[name], settings, stop)
    except JobError as error:
        log("error", "job_failed", job=name, reason=error)
        return 1
    except (*JVM_GONE, PySparkException) as error:
        if not stop.is_set():
            log("error", "job_failed", job=name, reason=sentence(error))
            return 1
    finally:
        notify.notify("STOPPING=1", "STATUS=stopping")
        stop_session(session)
    log("info", "stopped", job=name)
    return 0


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Return the settings that have options of their own."""
    checkpoint = arguments.checkpoint or default_checkpoint(arguments.job)
    return replace(Settings(), bootstrap=arguments.bootstrap, master=arguments.master, checkpoint=checkpoint)


def list_jobs(arguments: argparse.Namespace) -> int:
    """Print the jobs, then their settings with unit, default and bounds."""
    sys.stdout.writelines(f"{line}\n" for line in listing(arguments.job))
    return 0


def print_jars(_: argparse.Namespace) -> int:
    """Fetch missing jars of the connector, and print the paths of all."""
    from spark.jvm.jars import connector_jars  # noqa: PLC0415

    sys.stdout.writelines(f"{jar}\n" for jar in connector_jars())
    return 0


def become_master(arguments: argparse.Namespace) -> int:
    """Become Spark's master; does not return."""
    from spark.jvm.standalone import exec_java  # noqa: PLC0415
    from spark.preflight import check_free, checked_size  # noqa: PLC0415

    checked_size("--heap", arguments.heap)
    check_free("--port", arguments.host, arguments.port)
    check_free("--web-port", "127.0.0.1", arguments.web_port)
    url, page = f"spark://{arguments.host}:{arguments.port}", f"http://127.0.0.1:{arguments.web_port}"
    log("info", "master_starting", url=url, web_page=page)
    exec_java("master", arguments.heap, listening(arguments))


def become_worker(arguments: argparse.Namespace) -> int:
    """Become a worker; does not return."""
    from spark.jvm.standalone import exec_java  # noqa: PLC0415
    from spark.preflight import check_free, checked_size, master_addresses, say_unreachable  # noqa: PLC0415

    checked_size("--heap", arguments.heap)
    checked_size("--memory", arguments.memory)
    check_free("--port", arguments.host, arguments.port)
    check_free("--web-port", "127.0.0.1", arguments.web_port)
    masters = master_addresses(arguments.master)
    page = f"http://127.0.0.1:{arguments.web_port}"
    log("info", "worker_starting", address=f"{arguments.host}:{arguments.port}", master=arguments.master, web_page=page)
    say_unreachable("master_not_reachable", masters, master=arguments.master)
    sizes = ["--cores", str(arguments.cores), "--memory", arguments.memory, "--work-dir", arguments.work_dir]
    exec_java("worker", arguments.heap, [*listening(arguments), *sizes, arguments.master])


def listening(arguments: argparse.Namespace) -> list[str]:
    """Return where a daemon listens, in Spark's words."""
    return ["--host", arguments.host, "--port", str(arguments.port), "--webui-port", str(arguments.web_port)]


if __name__ == "__main__":
    sys.exit(main())
