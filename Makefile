# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0

VENV ?= .venv
PYTHON_OF_VENV = $(VENV)/bin/python
STAMP = $(VENV)/.setup-complete
DEMO_OUT ?= demo_out

# Left by the ROS wheels' start-up hook of a surrounding Python: it would keep this environment's own hook from running.
unexport _ROS_WHEELS_BOOTSTRAP_COMPLETE

.PHONY: help setup demo test test-slow lint clean

help:
	@echo "make demo       map a synthetic recording with the real node; results in $(DEMO_OUT)/"
	@echo "make test       the test suite"
	@echo "make test-slow  the tests that take more than a minute each"
	@echo "make lint       ruff and mypy"
	@echo "make setup      the environment in $(VENV) (the others do this when needed)"
	@echo "make clean      remove the environment and everything built"

setup: $(STAMP)

$(STAMP): scripts/setup.sh setup.py $(wildcard bin/* interfaces/tf2_msgs/*)
	VENV=$(VENV) bash scripts/setup.sh
	touch $@

demo: $(STAMP)
	$(PYTHON_OF_VENV) -m lingbot_map_ros.replay.demo --output $(DEMO_OUT)

test: $(STAMP)
	$(PYTHON_OF_VENV) -m pytest -m "not slow"

test-slow: $(STAMP)
	$(PYTHON_OF_VENV) -m pytest -m slow

lint: $(STAMP)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) $(DEMO_OUT) build install log *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
