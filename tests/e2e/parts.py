"""Every process of the demo: how each is configured and started, and the two ends of the cut link.

Configuration files are written here into the demo's own directory; measuring and judging happen elsewhere.
"""

from __future__ import annotations

import getpass
import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.e2e.link import CUT, RESTORE
from tests.support import runtimes
from tests.support.processes import ApacheKafka, EdgeBroker, Mosquitto, Process, free_port

PARTITIONS = 2
BROKER_SETTINGS = {"num.partitions": PARTITIONS}
MIRRORED = ("readings", "logs", "board_health", "readings_windows", "readings_alarms", "__edge_ledger")
SPARK_LATENESS_MAX_MS = 15_000

GATEWAY_TOML = """\
state_dir = "{root}/gateway"
metrics = "127.0.0.1:{metrics_port}"

[kafka]
bootstrap_servers = "{bootstrap}"

[mqtt]
port = {mqtt_port}
client_id = "drupelet-gateway"

[[mqtt.routes]]
pattern = "sites/{site}/devices/{{device}}/readings"
topic = "readings"
key = "{{device}}"
timestamp_field = "time_ms"

[[files]]
path = "{log_path}"
topic = "logs"

[board]
topic = "board_health"
interval_ms = 1000

[mosquitto]
listeners = ["127.0.0.1:{mqtt_port}"]
persistence_dir = "{root}/mosquitto"
user = "{user}"
"""


MIRROR_TOML = """\
metrics = "127.0.0.1:{metrics_port}"
backoff_max_ms = 2000
refresh_interval_ms = 2000
"""


class Road:
    """The whole road on this machine; `central` is `edge`, `kafka`, or the HOST:PORT of a Kafka that is not ours."""

    def __init__(self, root: Path, site: str, *, edge: str, central: str, rotate_after_s: float) -> None:
        self.root = root
        self.site = site
        self.logs = root / "logs"
        self.log_path = root / "plant.log"
        self.fleet_journal = root / "fleet.journal"
        self.log_journal = root / "log_writer.journal"
        self.link_status = root / "link.json"
        self.checkpoint = root / "spark"
        self.edge_data = root / "edge-data"
        self.edge = _broker(edge, self.logs, "edge", self.edge_data, None)
        self.central, self.link, self.central_bootstrap = self._far_side(central)
        self.gateway_metrics_port = free_port()
        self.mirror_metrics_port = free_port()
        self.mosquitto, self.gateway = self._near_side()
        self.mirror = self._mirror()
        self.spark = self._spark()
        self.rotate_after_s = rotate_after_s
        self.fleet = self._fleet(0)
        self.log_writer = self._log_writer(0)

    @property
    def started(self) -> list[tuple[str, Process | None]]:
        """The parts in the order in which they start; those that are not ours have no process."""
        return [
            ("central", self.central),
            ("link", self.link),
            ("edge", self.edge),
            ("mosquitto", self.mosquitto),
            ("gateway", self.gateway),
            ("mirror", self.mirror),
            ("spark", self.spark),
            ("log writer", self.log_writer),
            ("fleet", self.fleet),
        ]

    @property
    def mirror_group(self) -> str:
        """The consumer group in which the mirror keeps its place at the edge."""
        return f"edge-mirror-{self.site}"

    @property
    def finished_windows(self) -> Path:
        """Where Spark puts the windows that are final."""
        return self.checkpoint / "finished_windows"

    def at_central(self, topic: str) -> str:
        """The topic's name at central, by the mirror's prefix policy."""
        return f"{self.site}.{topic}"

    def cut(self) -> None:
        """Cut the link; where it cannot be cut, hold the mirror still."""
        if self.link is not None:
            self.link.send_signal(CUT)
        else:
            self.mirror.send_signal(signal.SIGSTOP)

    def restore(self) -> None:
        """Undo `cut`."""
        if self.link is not None:
            self.link.send_signal(RESTORE)
        else:
            self.mirror.send_signal(signal.SIGCONT)

    def link_state(self) -> dict[str, int]:
        """What the link last wrote of itself."""
        found: dict[str, int] = json.loads(self.link_status.read_text())
        return found

    def _far_side(self, central: str) -> tuple[Process | None, Process | None, str]:
        if central not in ("edge", "kafka"):
            return None, None, central
        link_port = free_port()
        advertise = f"127.0.0.1:{link_port}"  # clients go where the broker sends them: through the link
        broker = _broker(central, self.logs, "central", self.root / "central-data", advertise)
        command = [sys.executable, "-m", "tests.e2e.link", "--port", str(link_port)]
        command += ["--target", broker.bootstrap, "--status", str(self.link_status)]
        return broker, Process("link", command, self.logs, ready="link ready"), advertise

    def _near_side(self) -> tuple[Mosquitto, Process]:
        config = self.root / "gateway.toml"
        text = GATEWAY_TOML.format(
            root=self.root,
            site=self.site,
            bootstrap=self.edge.bootstrap,
            metrics_port=self.gateway_metrics_port,
            mqtt_port=free_port(),
            log_path=self.log_path,
            user=getpass.getuser(),
        )
        config.write_text(text)
        (self.root / "mosquitto").mkdir()
        program = runtimes.console_script("edge-gateway")
        done = subprocess.run(
            [program, "mosquitto-conf", "--config", config], check=True, stdout=subprocess.PIPE, text=True
        )
        mosquitto_config = self.root / "mosquitto.conf"
        mosquitto_config.write_text(done.stdout)
        gateway = Process("gateway", [program, "run", "--config", config], self.logs, ready="edge-gateway ready")
        return Mosquitto(self.logs, config=mosquitto_config), gateway

    def _mirror(self) -> Process:
        command: list[str | Path] = [runtimes.console_script("edge-mirror"), "run", "--source", self.edge.bootstrap]
        command += ["--target", self.central_bootstrap, "--topics", "|".join(MIRRORED), "--site", self.site]
        config = self.root / "mirror.toml"
        config.write_text(MIRROR_TOML.format(metrics_port=self.mirror_metrics_port))
        command += ["--policy", "prefix", "--config", config]
        return Process("mirror", command, self.logs, ready="edge-mirror ready")

    def _spark(self) -> Process:
        command: list[str | Path] = [runtimes.console_script("edge-spark"), "run", "readings"]
        command += ["--bootstrap", self.edge.bootstrap, "--checkpoint", self.checkpoint]
        command += ["--set", f"lateness_max_ms={SPARK_LATENESS_MAX_MS}"]
        return Process("spark", command, self.logs)

    def _fleet(self, first_device: int) -> Process:
        command = [sys.executable, "-m", "tests.e2e.fleet", "--mqtt", f"127.0.0.1:{self.mosquitto.port}"]
        command += ["--journal", str(self.fleet_journal), "--site", self.site, "--first-device", str(first_device)]
        return Process("fleet", command, self.logs, ready="ready")

    def _log_writer(self, first_seq: int) -> Process:
        command = [sys.executable, "-m", "tests.e2e.log_writer", "--file", str(self.log_path)]
        command += ["--journal", str(self.log_journal), "--first-seq", str(first_seq)]
        command += ["--rotate-after", str(self.rotate_after_s)] if first_seq == 0 else []
        return Process("log-writer", command, self.logs, ready="log writer ready")

    def load_again(self, lines: int) -> None:
        """Start load anew for whoever wants to look: other devices than before, and the log where it ended."""
        self.gateway.start()
        self.fleet = self._fleet(50).start()
        self.log_writer = self._log_writer(lines).start()


def _broker(kind: str, directory: Path, name: str, data_dir: Path, advertise: str | None) -> EdgeBroker | ApacheKafka:
    make = EdgeBroker if kind == "edge" else ApacheKafka
    return make(directory, name=name, data_dir=data_dir, advertise=advertise, settings=BROKER_SETTINGS)
