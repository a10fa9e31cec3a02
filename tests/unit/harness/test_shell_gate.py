"""UNIT: which shell commands the Inspector must see."""

import pytest

from harness.shell_gate import gated_by

PROGRAMS = ["curl", "wget", "git", "pip", "apt-get", "nc", "ssh"]


@pytest.mark.parametrize(
    "command",
    [
        "curl example.org",
        "cd x && curl -s example.org",
        "echo a | nc 10.0.0.1 80",
        "x=$(wget -qO- example.org)",
        "sudo apt-get install jq",
        "sudo -u worker env A=1 /usr/bin/curl x",
        "/usr/bin/git clone x",
        "bash -c 'pip install x'",
        "cu''rl example.org",
        "c\\url example.org",
        "find . -exec curl {} +",
        "timeout 5 ssh host",
        "python3 -m pip install x",
        "python3 -c 'import urllib.request'",
        "python3 -c 'import socket; socket.create_connection((1,2))'",
        "perl -MIO::Socket -e1",
        "node -e 'require(\"https\")'",
        "exec 3<>/dev/tcp/10.0.0.1/80",
        "xdg-open https://example.org",
        "echo hi;curl x",
        "`curl x`",
        "printf %s aWQ= | base64 -d | sh",
        "tr a-z n-za-m < x | sudo -n /bin/bash -s",
        "cat x | $SHELL",
        "cat x |& dash",
    ],
)
def test_a_command_that_names_the_network_is_gated(command):
    assert gated_by(command, PROGRAMS)


@pytest.mark.parametrize(
    "command",
    [
        "ls -la",
        "cat notes/git.md",
        "python3 scripts/probe.py",
        "grep -r curly .",
        "make -j2",
        "echo pipeline",
        "cat .gitignore",
        "test -e x || sh build.sh",
        "ls | shuf",
        "bash scripts/probe.sh | tee log",
    ],
)
def test_ordinary_work_is_not_gated(command):
    assert gated_by(command, PROGRAMS) is None
