# Drupelet. `make help` says what there is; every target sets up what it needs, once.
#
# Variables for the command line: SECONDS (length of the demo, of abuse, of simulate-mirror), CENTRAL (the datacenter's Kafka:
# HOST:PORT, `kafka` for Apache Kafka 4.3.1 from jars, or empty for a second edge broker), KEEP=1 (leave the demo running),
# BROKER=kafka (conformance against Apache Kafka), SECURITY=secured (conformance by TLS and SCRAM), ROUNDS (of kill -9 in the
# fault tests; from 100 on all of them take their long forms), SCENARIO and AT_ONCE (of molecule), SEED and HOURS (of simulate and
# simulate-mirror), SEED, PART (suite or fault) and TIMES (of test-loaded), BEFORE (the checkout that bench-change compares
# with), ARGS (handed on to pytest, the suites, the demo or the benchmark).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

SECONDS = 120
CENTRAL =
KEEP =
BROKER = edge
SECURITY = plain
ROUNDS = 200
SCENARIO =
AT_ONCE = 2
BEFORE =
SEED =
PART =
TIMES =
HOURS =
ARGS =

VENV := .venv
PYTHON := $(VENV)/bin/python
SETUP := tests/support/setup.sh
PYTEST := $(PYTHON) -m pytest
SCRIPTS := .ci/run $(SETUP) tests/support/pins.sh ansible/molecule/run ansible/molecule/lab/lab.sh ansible/molecule/lab/ssh ansible/molecule/site/secrets.sh \
	ansible/molecule/site/publish.sh ansible/molecule/site/vault-password \
	ansible/playbooks/bundle/bundle.sh tests/card/root.sh tests/card/image.sh tests/support/readers.sh tests/conformance/readers/judge.sh tests/conformance/readers/first_boot.sh tests/golden/upstream/run.sh \
	ansible/playbooks/files/kept.sh ansible/playbooks/files/wheel.sh ansible/playbooks/files/preflight.sh ansible/roles/packages/files/mend.sh ansible/molecule/drupelet/cut.sh ansible/molecule/upgrade/wheels.sh \
	ansible/molecule/base/password.sh ansible/molecule/base/journal.sh ansible/molecule/broker/oom.sh ansible/molecule/broker/sick.sh \
	ansible/molecule/base/router.sh ansible/molecule/base/archives.sh tests/benchmarks/in_root.sh

.PHONY: help demo cluster test test-all test-root test-loaded unit crash simulate simulate-mirror simulate-loops simulate-journal cluster-simulate simulate-files fuzz-walker fuzz-login conformance differential fault cluster-rounds disk-full abuse night e2e check format pins bench bench-secured bench-cluster bench-change bench-mirror bench-storage bench-writes bench-starts bench-compaction install-deps install-demo install-cluster \
	install-test install-check molecule page card clean distclean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  make demo SECONDS=45              a shorter demo; the cut of the link is scaled"
	@echo "  make demo CENTRAL=kafka           the datacenter is Apache Kafka 4.3.1; CENTRAL=HOST:PORT takes any Kafka"
	@echo "  make demo KEEP=1                  leave everything running and print how to look into it"
	@echo "  make conformance BROKER=kafka     hold the suite itself against Apache Kafka 4.3.1"
	@echo "  make conformance SECURITY=secured the same clients again, by TLS and SCRAM"
	@echo "  make unit ARGS='-k index -x'      ARGS goes to pytest, the demo or the benchmark"

demo: install-demo  ## the whole road on this machine, with a cut link and a killed broker (about two minutes)
	$(PYTHON) -m tests.e2e.demo --seconds $(SECONDS) $(if $(CENTRAL),--central $(CENTRAL)) $(if $(KEEP),--keep) $(ARGS)

cluster: install-cluster  ## three brokers and a ZooKeeper ensemble on this machine, to make trouble with, until Ctrl-C
	$(PYTHON) -m tests.e2e.cluster $(ARGS)

test: install-test  ## what a contributor runs before sending a change: unit, property and golden tests, each client, each kind of fault
	$(PYTHON) -m tests.suites --people $(ARGS)

test-all: install-test  ## every suite that CI runs, two at a time (tests/suites.py; ARGS='unit demo': those alone)
	@$(SETUP) jars old-kafka-jars
	$(PYTHON) -m tests.suites $(ARGS)

# Writes no caches: what root leaves in a user's checkout, the user cannot write again.
test-root: root-only install-test  ## of these the ones that an ordinary user may not run: loop devices, mounts, /dev/fuse, a Debian root
	export PYTHONDONTWRITEBYTECODE=1; $(PYTEST) -p no:cacheprovider -m root $$($(PYTHON) -m tests.suites --folders) $(ARGS)

test-loaded: install-test  ## each suite once and the fault tests 20 times beside hogs (PART=suite or fault, TIMES=, SEED=; takes hours)
	@$(SETUP) jars old-kafka-jars
	$(PYTHON) -m tests.loaded $(if $(SEED),--seed $(SEED)) $(if $(PART),--part $(PART)) $(if $(TIMES),--times $(TIMES)) $(ARGS)

.PHONY: root-only
root-only:
	@[ "$$(id -u)" -eq 0 ] || { echo "This mounts and makes devices, so run: sudo make $(MAKECMDGOALS)" >&2; exit 1; }

unit: $(VENV)/.installed-test  ## unit and property tests; of the other runtimes they need Java alone
	$(PYTEST) tests/unit tests/property tests/golden tests/simulation $(ARGS)

crash: $(VENV)/.installed-test  ## power cuts of the log on a simulated disk: 40,000 crash points, at least 20,000 in 5.5 minutes
	$(PYTHON) -m tests.simulation.crash --points 40000 --seconds 330 $(ARGS)

simulate: $(VENV)/.installed-test  ## the same, and whole brokers in any order, from a new seed on until one fails; SEED=: that one alone; HOURS=: so long
	$(PYTHON) -m tests.simulation.crash $(if $(SEED),--seed $(SEED)) $(if $(HOURS),--hours $(HOURS)) $(ARGS)

simulate-mirror: $(VENV)/.installed-test  ## the mirror between two ends in memory, in virtual time, from a new seed on (SECONDS=120); SEED=: that one alone; HOURS=: so long
	$(PYTHON) -m tests.simulation.mirror --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(HOURS),--hours $(HOURS)) $(ARGS)

simulate-loops: $(VENV)/.installed-test  ## several sites and the mirrors between them, in memory, from a new seed on (SECONDS=120); SEED=: that one alone; HOURS=: so long
	$(PYTHON) -m tests.simulation.loops --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(HOURS),--hours $(HOURS)) $(ARGS)

cluster-simulate: $(VENV)/.installed-test  ## a cluster of brokers over a model of ZooKeeper, in virtual time, for 60 s; SEED=: that one alone; HOURS=: so long
	$(PYTHON) -m tests.simulation.cluster $(if $(SEED),--seed $(SEED)) $(if $(HOURS),--hours $(HOURS)) $(ARGS)

simulate-journal: $(VENV)/.installed-test  ## journals of up to four machines rotated, deleted and copied under a gateway that is killed: 2,000 schedules; SEED=: from that one on
	$(PYTHON) -m tests.simulation.gateway_journal $(if $(SEED),--seed $(SEED)) $(ARGS)

simulate-files: $(VENV)/.installed-test  ## rotations, stops and disagreeing clocks against the reader of log files, 20,000 schedules from a new seed on; SEED=: that one alone
	$(PYTHON) -m tests.simulation.gateway_files --schedules 20000 $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz-walker: $(VENV)/.installed-test  ## the compiled walker of records under sanitizers, against the Python one (SECONDS=120, SEED=)
	$(PYTHON) -m tests.property.walker_fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz-login: $(VENV)/.installed-test  ## all that is read before a log-in, SASL and TLS, mutated, in memory and over sockets (SECONDS=120, SEED=)
	$(PYTHON) -m tests.property.login_fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

conformance: install-test  ## real Kafka clients against the edge broker (BROKER=kafka: against Apache Kafka; SECURITY=secured: by TLS and SCRAM)
	$(PYTEST) tests/conformance --broker $(BROKER) --security $(SECURITY) $(ARGS)

differential: install-test  ## the same requests, good and bad, to the edge broker and to Apache Kafka 4.3.1 and 3.9.2
	@$(SETUP) jars old-kafka-jars
	$(PYTEST) tests/differential $(ARGS)

fault: install-test  ## kill -9 (ROUNDS=) and power cuts (half as many) under load, and other ways for a disk to fail
	$(PYTEST) tests/fault --rounds $(ROUNDS) $(ARGS)

cluster-rounds: ROUNDS = 10
cluster-rounds: install-test  ## three brokers and a ZooKeeper ensemble, killed, paused, cut off and powered off under load, in rounds (root; ROUNDS=10, SEED=)
	@$(SETUP) jars zookeeper-jars
	$(PYTEST) -s tests/fault/test_cluster_rounds.py --cluster-rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

disk-full: install-test  ## a disk of 64 MB that several producers fill (SECONDS=300: the long form)
	$(PYTEST) -s tests/fault/test_disk_full.py --seconds $(SECONDS) $(ARGS)

abuse: $(VENV)/.installed-test  ## what anybody can do without a log-in or rights, against memory and an honest client (SECONDS=; ARGS='B1 Fetch': those alone)
	$(PYTHON) -m tests.abuse.run --seconds $(SECONDS) $(ARGS)

mirrormaker: install-test  ## MirrorMaker 2 with its defaults, from Apache Kafka into the edge broker
	@$(SETUP) jars kafka-jars
	@$(SETUP) jars mirrormaker-jars
	$(PYTEST) tests/mirrormaker $(ARGS)

night:  ## what takes too long for each change, for hours (root): abuse whole, secured clients, 200 kills, long fuzzes, mirror and cluster simulated, 100 rounds of a real cluster, every host, disk-full, the card, the page, test-loaded
	$(MAKE) abuse SECONDS=1500
	$(MAKE) conformance SECURITY=secured
	$(MAKE) fault
	$(MAKE) unit ARGS="-m night"
	$(MAKE) e2e ARGS="-m night"
	$(MAKE) fuzz-walker SECONDS=1200
	$(MAKE) fuzz-login SECONDS=1200
	$(MAKE) simulate-mirror HOURS=1
	$(MAKE) simulate-journal ARGS='--schedules 50000'
	$(MAKE) cluster-simulate HOURS=1
	$(MAKE) simulate-files
	$(MAKE) cluster-rounds ROUNDS=100
	$(MAKE) molecule
	$(MAKE) disk-full SECONDS=300
	$(MAKE) card
	$(MAKE) page
	$(MAKE) mirrormaker
	$(MAKE) test-loaded

e2e: install-test  ## all parts together
	$(PYTEST) tests/e2e $(ARGS)

check: check-code check-roles check-tests  ## lint, format, types, import direction, shell scripts, YAML, playbooks, that every test can be imported

.PHONY: check-code check-roles check-tests
check-code: install-check
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/shellcheck $(SCRIPTS)

check-roles: install-check
	$(VENV)/bin/yamllint --strict ansible
	cd ansible && ../$(VENV)/bin/ansible-lint -q -c ../.ansible-lint roles playbooks

check-tests: install-check
	$(PYTEST) -q tests/unit/support/test_packages.py
	$(PYTEST) -qq --collect-only tests >/dev/null || { $(PYTEST) -qq --collect-only tests 2>&1 | grep -v '::' >&2; exit 1; }  # a name that a change took away

format: $(VENV)/.installed-check  ## ruff's format and its safe fixes
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

pins: $(VENV)/.installed-pins  ## drupelet/pins: versions and hashes of what boards install (ARGS=--upgrade: the newest)
	tests/support/pins.sh $(VENV) $(ARGS)

bench: install-test  ## the edge broker and Apache Kafka in turn, as ratios
	$(PYTHON) -m tests.benchmarks.broker $(ARGS)

bench-secured: install-test  ## the same with TLS, log-ins and rights on both sides; handshakes, memory of connections
	$(PYTHON) -m tests.benchmarks.secured $(ARGS)

bench-cluster: install-test  ## three edge brokers beside three of Apache Kafka 4.3 and 3.9: rates, idleness, pauses, catching up (root for the last row)
	@$(SETUP) jars kafka-jars
	@$(SETUP) jars old-kafka-jars
	@$(SETUP) jars zookeeper-jars
	$(PYTHON) -m tests.benchmarks.cluster $(ARGS)

bench-change: install-test  ## what a change costs: this checkout and the one in BEFORE=DIR in pairs, with intervals
	$(PYTHON) -m tests.benchmarks.change $(BEFORE) $(ARGS)

bench-storage: install-test  ## durable produce against the disk's own limit and Apache Kafka (ARGS='--before DIR': another checkout)
	$(PYTHON) -m tests.benchmarks.storage $(ARGS)

bench-compaction: install-test  ## what compaction costs producers, and how fast a compacted topic loads (ARGS='stall load writes memory')
	$(PYTHON) -m tests.benchmarks.compaction $(ARGS)

bench-writes: install-test  ## bytes written to the device for each byte of payload, beside Apache Kafka and mosquitto (root)
	$(PYTHON) -m tests.benchmarks.writes $(ARGS)

bench-starts: install-test  ## starts with 20 GB in 200 partitions, after a clean stop and after a kill
	$(PYTHON) -m tests.benchmarks.starts $(ARGS)

bench-mirror: root-only install-test  ## edge-mirror beside MirrorMaker 2 over emulated links, an hour at most, gone on with where it ended (root; ARGS="--only 'bulk-*@1M' --side mirror")
	@$(SETUP) jars kafka-jars
	@$(SETUP) jars mirrormaker-jars
	$(PYTHON) -m tests.benchmarks.mirror $(ARGS)

molecule:  ## the Ansible roles and playbooks on systemd hosts made for it (root; SCENARIO=mirror: that one alone; AT_ONCE=1)
	@$(SETUP) packages venv mmdebstrap systemd-container openssh-client iproute2
	@$(MAKE) -s --no-print-directory $(VENV)/.installed-ansible
	AT_ONCE=$(AT_ONCE) ansible/molecule/run $(SCENARIO)

page: root-only  ## FROM-A-BARE-CARD.md followed literally on fresh hosts, packages from their registries (root; nightly, half an hour)
	@$(SETUP) packages venv mmdebstrap systemd-container openssh-client iproute2 mtools e2fsprogs dosfstools fdisk
	@$(MAKE) -s --no-print-directory $(VENV)/.installed-test $(VENV)/.installed-ansible
	$(PYTEST) -x -s tests/page $(ARGS)

card:  ## a card made, flashed, booted in an emulator, provisioned and used, its power cut (root; nightly, it takes long)
	@$(SETUP) packages venv mmdebstrap qemu-system-arm qemu-user-static openssh-client mtools e2fsprogs dosfstools fdisk
	@$(MAKE) -s --no-print-directory $(VENV)/.installed-test $(VENV)/.installed-ansible
	$(PYTEST) -x -s tests/card $(ARGS)

install-deps: install-test install-check  ## everything any target needs

install-demo:
	@$(SETUP) packages venv java mosquitto
	@$(MAKE) -s --no-print-directory $(VENV)/.installed-test
	@$(VENV)/bin/edge-spark jars >/dev/null
	$(if $(filter kafka,$(CENTRAL)),@$(SETUP) jars)

install-cluster:
	@$(SETUP) packages venv java kcat
	@$(MAKE) -s --no-print-directory $(VENV)/.installed-test
	@$(SETUP) jars zookeeper-jars

install-test:
	@$(SETUP) packages venv java mosquitto mosquitto-clients kcat zsh man-db mtools e2fsprogs dosfstools fdisk fuse3 libfaketime mmdebstrap openssh-client iproute2 systemd-journal-remote rsyslog
	@$(MAKE) -s --no-print-directory $(VENV)/.installed-test $(VENV)/.installed-ansible
	@$(VENV)/bin/edge-spark jars >/dev/null
	@$(SETUP) jars
	@$(SETUP) jars zookeeper-jars

install-check: $(VENV)/.installed-test $(VENV)/.installed-check

$(VENV)/.installed-%: pyproject.toml $(SETUP)
	@$(SETUP) python $(VENV) $*
	@touch $@

# One at a time, also by `make --jobs`: all go into one environment.
$(VENV)/.installed-check $(VENV)/.installed-ansible: | $(VENV)/.installed-test

clean:  ## caches, build results and what demos left behind
	rm -rf .demo .cache dist bench-results .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean  ## the virtual environment too
	rm -rf $(VENV)
