# SPDX-License-Identifier: Apache-2.0
"""Completion in bash, zsh and fish themselves: words, commands below commands, options and files."""

import os
import pathlib
import pty
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPTS = TOP / "src/cli/completion"

# Line before the cursor, what is offered among others, what is not offered
LINES = [
    ("aliquot in", {"inspect"}, {"explain", "--version"}),
    ("aliquot mig ap", {"apply"}, {"inspect"}),
    ("aliquot sim inject ", {"xid", "swap-minors"}, {"inspect", "--gpu"}),
    ("aliquot card --w", {"--wait"}, {"cordon"}),
    ("aliquot limits set --co", {"--core"}, {"set"}),
    ("aliquot inspect ", {"cluster", "memory"}, {"--json"}),
    ("aliquot mig apply -f some", {"some-file"}, {"apply"}),
    ("aliquot inspect -n ", set(), {"cluster", "some-file"}),
    ("aliquot --context sim expl", {"explain"}, {"inject"}),
    ("aliquot -h mig ap", {"apply"}, {"inspect"}),
    ("aliquot mig apply --config-file some", {"some-file"}, {"apply"}),
]

BASH = """
source "$1"
COMP_LINE=$2 COMP_POINT=${#2}
read -ra COMP_WORDS <<<"$2"
[[ $2 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_aliquot
printf '%s\\n' "${COMPREPLY[@]}"
"""

# Each match that compadd would offer, between marks.
ZSH = """
setopt no_beep no_prompt_cr no_prompt_sp
PS1='' PS2='' RPS1=''
autoload -Uz compinit && compinit -u -D
compadd() {
    local -a hits
    builtin compadd -O hits "$@"
    print -r -- "<${(j:><:)hits}>"
    builtin compadd "$@"
}
zstyle ':completion:*' menu no
LISTMAX=9999
print READY
"""


@pytest.fixture(scope="session")
def shells():
    return pathlib.Path(subprocess.run([TOP / "scripts/fetch-shells"], stdout=subprocess.PIPE, text=True,
                                       check=True).stdout.strip())


@pytest.fixture
def here(tmp_path, build):
    (tmp_path / "some-file").touch()
    return {"cwd": tmp_path, "env": {"PATH": f"{build}/src/cli:{os.environ['PATH']}", "HOME": str(tmp_path),
                                     "TERM": "dumb", "LC_ALL": "C.UTF-8"}}


def complete_bash(line, here, shells):
    done = subprocess.run(["bash", "-c", BASH, "bash", SCRIPTS / "aliquot.bash", line], capture_output=True, text=True,
                          check=True, **here)
    assert not done.stderr, done.stderr
    return set(done.stdout.split("\n"))


def complete_fish(line, here, shells):
    env = {**here["env"], "LD_LIBRARY_PATH": str(shells / "usr/lib/x86_64-linux-gnu")}
    done = subprocess.run([shells / "usr/bin/fish", "--no-config", "-c",
                           'set fish_function_path $argv[1]; source $argv[2]; complete -C $argv[3]',
                           shells / "usr/share/fish/functions", SCRIPTS / "aliquot.fish", line],
                          capture_output=True, text=True, check=True, cwd=here["cwd"], env=env)
    assert not done.stderr, done.stderr
    return {row.split("\t")[0] for row in done.stdout.splitlines()}


def read_until(fd, mark):
    text = ""
    while mark not in text:
        text += os.read(fd, 65536).decode()
    return text


def complete_zsh(line, here, shells):
    functions = shells / "usr/share/zsh/functions"
    dirs = [functions / sub for sub in ("Completion", "Completion/Base", "Completion/Zsh", "Completion/Unix", "Misc")]
    start = (f"module_path=({shells}/usr/lib/x86_64-linux-gnu/zsh/5.9)\n"
             f"fpath=({SCRIPTS} {' '.join(map(str, dirs))})\n{ZSH}")
    (here["cwd"] / ".zshrc").write_text(start)
    env = {**here["env"], "ZDOTDIR": str(here["cwd"])}
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(here["cwd"])
        os.execve(shells / "bin/zsh", ["zsh", "-d", "-i"], env)
    try:
        read_until(fd, "READY")
        os.write(fd, b'zle-done() { print -r -- "<END>" }; zle -N zle-done; bindkey "^X^E" zle-done; print BO""UND\r')
        read_until(fd, "BOUND\r\n")
        os.write(fd, line.encode() + b"\t\x18\x05")
        text = read_until(fd, "<END>")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(fd)
    return set(text.replace("\r", "").replace("\n", "").replace(">", "<").split("<"))


@pytest.mark.parametrize("shell", [complete_bash, complete_zsh, complete_fish], ids=["bash", "zsh", "fish"])
@pytest.mark.parametrize("line, offered, others", LINES, ids=[line for line, *_ in LINES])
def test_offers(shell, line, offered, others, here, shells):
    found = shell(line, here, shells)
    assert offered <= found, found
    assert not others & found, found
