# Everything is set up in .venv in this folder; nothing outside it is changed, but for Debian packages that `make test`
# installs when it runs as root, and for downloads cached in the home directory.
# The two commands: `make demo` (Python is all it needs) and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HADOOP_VERSION ?= 3.4.2
# Most tests wait most of the time, so three run at once, those of one file in one process; two of the three processes
# have daemons (see tests/sharing.py): with those of a third some waited too long for theirs.
PYTEST_ARGS ?= --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 30

# Some images forbid it: then each of the many processes that the tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-yarn versions faults e2e hadoop hadoop-stop test lint types format docs docs-tables screenshots proto wheel clean test-long unit pythons

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# -- the two commands ------------------------------------------------------------------------------------------------

demo: $(VENV)/.demo  ## train the example on the embedded local cluster: no Hadoop, no Java
	$(BIN)/python -m tests.demo local

test: packages $(VENV)/.test  ## everything: linters, types, all tests against real Hadoop, Kerberos and Airflow
	$(MAKE) --no-print-directory --jobs 2 --output-sync lint types fetch
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not long"

test-long: packages-kinds $(VENV)/.test  ## the tests that `make test` leaves out, since others of their kind are there
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m long

unit: $(VENV)/.test  ## the quick round: linters, types, and all tests that need neither daemons nor a whole training
	$(MAKE) --no-print-directory --jobs 2 --output-sync lint types
	$(BIN)/python -m pytest $(PYTEST_ARGS) --no-daemons --no-trainings -m "not long"

pythons: $(VENV)/.test  ## the tests that need no daemons on each Python that is here; PYTHONS=3.9,3.12 for some
	$(BIN)/python -m tests.pythons $(subst $(comma), ,$(PYTHONS))

.PHONY: airflows
airflows: packages $(VENV)/.test fetch  ## imports, demo and e2e's rows on the last release of Airflow 3.0 to 3.3; VERSIONS=3.0.6,3.1.8 for some
	$(BIN)/python -m tests.airflows $(subst $(comma), ,$(VERSIONS))

# -- a real cluster on this machine ----------------------------------------------------------------------------------

hadoop: packages $(VENV)/.test  ## start HDFS and YARN (two NodeManagers) on this machine, on loopback
	$(BIN)/python -m tests.hadoop start --version $(HADOOP_VERSION)

hadoop-stop:  ## stop it
	$(BIN)/python -m tests.hadoop stop --version $(HADOOP_VERSION)

demo-yarn: packages $(VENV)/.test  ## the example on a real HDFS and YARN, as an ordinary user, and what it left behind
	$(BIN)/python -m tests.demo yarn

versions: packages $(VENV)/.test  ## the same on Hadoop 2.10 and 3.1 to 3.5, trainings that are hit, and jobs on each Python; VERSIONS=3.1.4,3.5.0 for some
	$(BIN)/python -m tests.demo versions $(addprefix --versions=,$(VERSIONS))
	$(BIN)/python -m pytest -n0 -m "" tests/jobs/test_each_python.py tests/jobs/test_other_python.py tests/jobs/test_mixed_pythons.py

comma := ,

faults: packages-torch $(VENV)/.test  ## hit a training on a real cluster by every fault, and what each cost; ROWS=name,name for some
	$(BIN)/python -m tests.faults $(subst $(comma), ,$(ROWS))

.PHONY: libraries
libraries: packages $(VENV)/.test  ## kill programs of current ML libraries in and between their saves; 6 GB of libraries; ROWS=name,name for some
	$(BIN)/python -m tests.libraries $(subst $(comma), ,$(ROWS))

.PHONY: secure
secure: packages-secure $(VENV)/.test  ## attack a job on a Kerberos cluster with https and other users, as root; ROWS=name,name for some, HADOOP_VERSION=3.3.6
	$(BIN)/python -m tests.secure --version $(HADOOP_VERSION) $(subst $(comma), ,$(ROWS))

# Rows of the table that are tests of something else, too.
KINDS_ELSEWHERE := "tests/jobs/test_gpus.py::test_no_two_containers_of_a_node_see_the_same_gpu_also_after_a_kill[yarn]" \
	tests/jobs/test_hadoop_access.py::test_with_kerberos

kinds: packages-kinds $(VENV)/.test  ## a small real training by each framework on a real cluster, and a table of them
	$(BIN)/python -m pytest tests/kinds $(KINDS_ELSEWHERE) --durations 0

BREADTH := tests/runtime/am/yarn/test_real_placement.py tests/runtime/am/yarn/test_real_placement_processor.py \
	$(patsubst %,tests/jobs/test_%.py,placement labels environments images suspension resizing tunnel notebook notebook_in_browser imported) \
	tests/kinds/test_resized.py tests/kinds/test_suspended.py

.PHONY: breadth
breadth: packages-kinds $(VENV)/.test  ## where containers are placed, environments, images, jobs that grow or are suspended, tunnels, notebooks, imports: on real clusters
	$(BIN)/python -m pytest $(BREADTH) --durations 0 -v

e2e: packages $(VENV)/.test  ## a whole Airflow on a real YARN, driven by REST and by a browser; ROWS=name,name for some
	$(BIN)/python -m tests.e2e $(subst $(comma), ,$(ROWS))

.PHONY: stale
stale: packages $(VENV)/.test fetch  ## correct the data of 30 dates, and retrain what is stale; compare 10,000 dates; test-output/e2e, test-output/bench
	$(BIN)/python -m tests.e2e stale-chain
	$(BIN)/python -m benchmarks.stale

.PHONY: gateways
gateways: packages $(VENV)/.test  ## jobs through a real Knox, HttpFS and federation routers, with Hive and Iceberg tables, and on a real S3 server; TESTS=knox for some
	$(BIN)/python -m pytest tests/gateways -m "long or not long" -k "$(TESTS)" --durations 0

.PHONY: portal
portal: packages $(VENV)/.test  ## the portal in a browser: a whole Airflow, YARN, a few dozen jobs, 10,000 summaries; test-output/portal
	$(BIN)/python -m tests.portal

.PHONY: fuzz
fuzz: $(VENV)/.test  ## a million inputs, grown from valid ones, for every parser of foreign bytes; FUZZ_ARGS=--seed=1; test-output/fuzz
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

.PHONY: advice
advice: packages $(VENV)/.test fetch  ## real jobs that deserve advice and some that do not, and a table of what each rule said
	$(BIN)/python -m pytest tests/advice/real $(ADVICE_ARGS)

.PHONY: bench bench-check bench-keep
bench: packages $(VENV)/.test fetch  ## all benchmarks but `rivals`, 36 to 70 minutes on two quiet cores; ONLY=launch,scale for some; test-output/bench
	$(BIN)/python -m benchmarks $(subst $(comma), ,$(ONLY))

bench-check: $(VENV)/.test  ## fail where a ratio of the newest run is worse than the one kept in benchmarks/kept; ONLY=launch,scale
	$(BIN)/python -m benchmarks.check $(subst $(comma), ,$(ONLY))

bench-keep: $(VENV)/.test  ## keep the newest run in benchmarks/kept, and show it in benchmarks/RESULTS.md; ONLY=launch,scale
	$(BIN)/python -m benchmarks.check --keep $(subst $(comma), ,$(ONLY))
	$(BIN)/python -m tests.documents

# -- the work --------------------------------------------------------------------------------------------------------

lint: $(VENV)/.test  ## ruff, allowed imports (import-linter), structure and language, and Python 3.9 for the runtime (vermin)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.structure
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs dags tony_provider
	$(BIN)/vermin --quiet --no-parse-comments --eval-annotations --target=3.9- --violations tony_provider/__init__.py tony_provider/runtime

types: $(VENV)/.test  ## mypy, strict
	$(BIN)/mypy

.PHONY: fetch
fetch: $(VENV)/.test  ## Hadoop's jars from Maven Central into the home directory's cache, where they are not there yet
	$(BIN)/python -m tests.hadoop fetch --version $(HADOOP_VERSION)

format: $(VENV)/.test  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.test  ## the documents as HTML in build/docs, with every warning an error; fetches nothing
	$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning -b html -c docs -d build/doctrees . build/docs
	@echo build/docs/index.html

docs-tables: $(VENV)/.test  ## write the generated blocks of docs/ and benchmarks/RESULTS.md, from the code and the kept runs
	$(BIN)/python -m tests.documents

screenshots: packages $(VENV)/.test  ## take the pictures of the documents anew, of an Airflow of their own: docs/_static/screenshots
	$(BIN)/python -m tests.screenshots

proto:  ## generate the protobuf code again, with a pinned generator
	PYTHON=$(PYTHON) sh tony_provider/runtime/hadoop/proto/generate.sh

wheel: $(VENV)/.uv  ## dist/*.whl, dist/*.tar.gz, and the bill of materials: dist/*.cdx.json
	$(BIN)/uv build --out-dir dist
	$(BIN)/python -m tests.supply.materials

.PHONY: audit
audit: $(VENV)/.uv  ## known holes in what is pinned; exit code 3 where no database of them can be asked
	$(BIN)/python -m tests.supply.audit

.PHONY: hashes
hashes: $(VENV)/.uv  ## resolve anew what `airflow tony runtime build` downloads, with its hashes
	$(BIN)/python -m tests.supply.hashes

.PHONY: constraints
constraints: $(VENV)/.uv  ## resolve the pins of constraints.txt anew
	$(BIN)/uv pip compile --upgrade --universal --no-annotate --no-header --python-version 3.11 --all-extras --group dev --group docs \
	    pyproject.toml -o constraints.txt

clean:  ## remove what make made here (not the caches in the home directory)
	-$(BIN)/python -m tests.hadoop stop --version $(HADOOP_VERSION)
	rm -rf $(VENV) .tony dist build test-output .mypy_cache .pytest_cache .ruff_cache .hypothesis

# -- setting up ------------------------------------------------------------------------------------------------------

.PHONY: packages packages-torch packages-kinds packages-secure
packages:
	@sh tests/packages.sh

packages-torch:
	@sh tests/packages.sh torch

packages-kinds:
	@sh tests/packages.sh kinds

packages-secure:
	@sh tests/packages.sh secure

$(VENV)/.uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 …")'
	@echo "Making a virtual environment in $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet -c constraints.txt uv
	@touch $@

# Compiled once: scores of processes import Airflow and TensorFlow, many of them as users who cannot write bytecode here.
$(VENV)/.demo: $(VENV)/.uv pyproject.toml constraints.txt
	@echo "Installing Airflow, TensorFlow and what they need into $(VENV): 2.7 GB, a few minutes, this once …"
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[tensorflow]'
	@touch $@

$(VENV)/.test: $(VENV)/.uv pyproject.toml constraints.txt
	@sh tests/packages.sh build
	@echo "Installing Airflow, TensorFlow and the tools of the tests into $(VENV): 3 GB, a few minutes, this once …"
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[tensorflow,hdfs,kerberos,object-stores,hive]' --group dev --group docs
	@touch $@ $(VENV)/.demo
