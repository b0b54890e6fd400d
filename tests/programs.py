# SPDX-License-Identifier: BSL-1.0
"""Every program that a script or a test calls is declared in .ci/programs, and what is declared of it holds:

    python3 programs.py [.ci/install-packages]

- a word that begins a command of a shell script, an archive's filter (`tar -J` calls xz), the first word of a list that
  Python gives to `subprocess`, a word after COMMAND in a file of CMake, and what the sources in C++ that start programs are
  declared to start: each is in the table;
- a program with a package is on the list of .ci/install-packages for those who call it.

So a test that begins to call another program fails here until somebody says where that program comes from."""

import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
INSTALL = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".ci/install-packages"
GROUPS = ["plan", "pytorch", "test", "ci"]

# Who calls, as the beginning of a path, and the group that is installed then. The first that fits counts.
CALLERS = {
    "examples/quickstart.sh": "plan",
    ".ci/build-remat-plan": "plan",
    ".ci/install-packages": "plan",
    "examples/pytorch/": "pytorch",
    "examples/python/": "pytorch",
    "examples/sweep/": "pytorch",
    ".ci/": "ci",
    "bench/": "ci",
    "docs/": "ci",
    **{f"tests/{by_hand}": "ci" for by_hand in (
        "coverage.sh", "faults.sh", "fuzz.sh", "gpu.sh", "long.sh", "mutants", "sweep_kills.py", "load.py", "tidy.sh")},
    "": "test",
}
# Sources in C++ that start programs by a name that is no path of the build.
STARTED_BY_CPP = {
    "tests/examples/remat_plan_test.cpp": ["sh"],
    "tests/examples/remat_run_test.cpp": ["sh"],
    "tests/mip/command_test.cpp": ["sh", "cbc", "glpsol", "grep", "sleep"],
}

RESERVED = {"if", "then", "elif", "else", "fi", "do", "done", "while", "until", "case", "esac", "for", "select", "in", "function",
            "time", "!", "{", "}", "[[", "]]", "coproc"}
BUILTIN = set(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo enable eval "
    "exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd pwd read "
    "readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit umask unalias unset "
    "wait".split())
# Their operand is a command, after options and so many words.
PREFIXES = {"env": 0, "exec": 0, "command": 0, "builtin": 0, "nice": 0, "nohup": 0, "sudo": 0, "xargs": 0, "timeout": 1, "chroot": 1}
FILTERS = {"J": "xz", "z": "gzip", "j": "bzip2"}  # of tar
mistakes = []


def table():
    known = {}
    for number, line in enumerate((ROOT / ".ci/programs").read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] in known:
            sys.exit(f".ci/programs:{number}: `{line}`; expected a program that stands here once, and where it comes from")
        known[words[0]] = words[1]
    return known


def packages():
    """The packages of each group, as .ci/install-packages lists them."""
    listed, text = {}, INSTALL.read_text()
    for group in GROUPS:
        entries = re.search(rf"^{group}=[\"']([^\"']*)[\"']", text, re.M)
        if not entries:
            sys.exit(f"{INSTALL}: lacks the list {group}")
        words = set()
        for word in entries[1].split():
            words |= listed[word[1:]] if word.startswith("$") else {word.split("=")[0]}
        listed[group] = words
    return listed


class Shell:
    """The words that begin the commands of a script for bash. It knows quotes, comments, here-documents, substitutions,
    arrays and the patterns of `case`; a word that it takes for a command by mistake shows up as unknown. Names that begin
    with _ are functions of completions."""

    def __init__(self, text, name):
        self.text, self.at, self.name = text, 0, name
        self.found, self.functions = [], set(re.findall(r"^\s*([\w-]+) ?\(\)", text, re.M))

    def commands(self):
        self.block(until="")
        return [word for word in self.found if word not in self.functions and not word.startswith("_")]

    def peek(self, length=1):
        return self.text[self.at : self.at + length]

    def block(self, until):
        """Commands up to the character `until`, which is passed over."""
        words, case, documents = [], [], []  # case: for each open one, whether a pattern is expected

        def end():
            if words:
                self.simple(words)
            words.clear()

        while self.at < len(self.text):
            c = self.peek()
            if until and c == until and not (c == ")" and case and case[-1]):
                end()
                self.at += 1
                return
            if c == "\n":
                end()
                self.at += 1
                for tag, tabs in documents:
                    self.here_document(tag, tabs)
                documents.clear()
            elif c in " \t":
                self.at += 1
            elif self.peek(2) == "\\\n":
                self.at += 2
            elif c == "#" and (self.at == 0 or self.text[self.at - 1] in " \t\n;&|("):
                self.at = (self.text + "\n").index("\n", self.at)
            elif self.peek(2) == "((" and not words:
                self.at = self.text.index("))", self.at) + 2
            elif self.peek(3) in (";;&",) or self.peek(2) in (";;", ";&"):
                end()
                self.at += 3 if self.peek(3) == ";;&" else 2
                if case:
                    case[-1] = True
            elif self.peek(2) in ("<(", ">("):
                self.at += 2
                self.block(")")
                words.append(None)
            elif c in "<>" or self.peek(2) == "&>" or re.match(r"\d+[<>]", self.peek(3)):
                operator = re.compile(r"\d*(&>>?|<<<|<<-?|[<>]&|>>|>\||<>|[<>])[ \t]*").match(self.text, self.at)
                self.at = operator.end()
                target = self.word()
                if operator[1] in ("<<", "<<-"):
                    documents.append((re.sub(r"[\"'\\]", "", target[1]), operator[1] == "<<-"))
            elif c in ";&|":
                end()
                self.at += 1
            elif c == "(":
                if case and case[-1] and not words:
                    self.at += 1  # (pattern)
                elif words and self.text[self.at + 1 : self.at + 2] == ")":
                    words.clear()  # a function
                    self.at += 2
                else:
                    self.at += 1
                    self.block(")")
            elif c == ")":
                self.at += 1
                words.clear()  # the end of a pattern
                if case:
                    case[-1] = False
            else:
                start = self.at
                literal, _ = self.word()
                if self.at == start:
                    sys.exit(f"{self.name}: what is `{self.text[start:start + 30]!r}`?")
                if case and case[-1] and literal != "esac":
                    continue  # of a pattern
                if literal in RESERVED and not words:
                    if literal == "case":
                        self.word_after_blanks()
                        self.at = self.text.index("in", self.at) + 2
                        case.append(True)
                    elif literal == "esac":
                        case.pop()
                    elif literal in ("for", "select"):
                        words.append("for")
                    elif literal == "[[":
                        while self.word_after_blanks()[0] != "]]":
                            self.at += self.peek() in "&|()<>\n"
                    continue
                words.append(literal)
        end()

    def word_after_blanks(self):
        while self.peek() in " \t":
            self.at += 1
        return self.word()

    def here_document(self, tag, tabs):
        while self.at < len(self.text):
            end = (self.text + "\n").index("\n", self.at)
            line = self.text[self.at : end]
            self.at = end + 1
            if (line.lstrip("\t") if tabs else line) == tag:
                return

    def word(self):
        """A word: its text, if no part of it is known only to the shell, else None; and its source."""
        start, text, literal = self.at, "", True
        while self.at < len(self.text):
            c = self.peek()
            if c in " \t\n;&|<>()":
                if c == "(" and text.endswith("="):  # an array
                    self.at += 1
                    self.array()
                    literal = False
                    continue
                break
            if c == "'":
                end = self.text.index("'", self.at + 1)
                text += self.text[self.at + 1 : end]
                self.at = end + 1
            elif c == '"':
                self.at += 1
                while self.peek() != '"':
                    if self.peek() == "\\":
                        text += self.text[self.at + 1]
                        self.at += 2
                    elif self.peek() in "$`":
                        self.expansion()
                        literal = False
                    else:
                        text += self.peek()
                        self.at += 1
                self.at += 1
            elif c == "\\":
                text += self.text[self.at + 1 : self.at + 2]
                self.at += 2
            elif c in "$`":
                literal = self.expansion() and literal
            else:
                text += c
                self.at += 1
        return (text if literal else None), self.text[start : self.at]

    def array(self):
        while True:
            c = self.peek()
            if c in " \t\n":
                self.at += 1
            elif c == "#":
                self.at = self.text.index("\n", self.at)
            elif c == ")":
                self.at += 1
                return
            elif c == "(":
                sys.exit(f"{self.name}: an array in an array")
            else:
                self.word()

    def expansion(self):
        """Passes over what begins with $ or `, and finds the commands inside. False: its text is known only to the shell."""
        if self.peek() == "`":
            sys.exit(f"{self.name}: write $(…) in place of `…`")
        if self.peek(3) == "$((":
            self.at = self.text.index("))", self.at) + 2
        elif self.peek(2) == "$(":
            self.at += 2
            self.block(")")
        elif self.peek(2) == "${":
            depth, self.at = 1, self.at + 2
            while depth:
                if self.peek(2) == "$(" and self.peek(3) != "$((":
                    self.at += 2
                    self.block(")")
                    continue
                depth += {"{": 1, "}": -1}.get(self.peek(), 0)
                self.at += 2 if self.peek() == "\\" else 1
        else:
            self.at += 1
            name = re.compile(r"\w+|[@*#?$!-]").match(self.text, self.at)
            self.at = name.end() if name else self.at
        return False

    def simple(self, words):
        """One command: its first word, and the command that it runs."""
        words = list(words)
        if words[0] == "for":
            return
        while words and words[0] is not None and re.match(r"[\w\[\]]+\+?=", words[0]):
            words.pop(0)
        if not words or words[0] is None or "/" in words[0]:
            return  # an assignment, or a program that is named by a variable or by its path
        first = words[0]
        self.found.append(first)
        options = [w for w in words[1:] if w is not None]
        if first == "tar":
            for letter, program in FILTERS.items():
                if any(re.match(r"-?[a-zA-Z]+$", w) and letter in w for w in options[:3] if not w.startswith("--")):
                    self.found.append(program)
        for shell, flag, script in zip(words, words[1:], words[2:]):
            if shell in ("bash", "sh") and flag == "-c" and script is not None:
                self.found += Shell(script, f"{self.name}: {script[:30]}").commands()
        if first == "command" and "-v" in options:
            self.found.pop()  # it asks
        elif first in PREFIXES:
            rest = words[1:]
            while rest and rest[0] is not None and (rest[0].startswith("-") or "=" in rest[0]):
                rest.pop(0)
            rest = rest[PREFIXES[first] :]
            if rest:
                self.simple(rest)
        for option in ("-exec", "-execdir"):
            if first == "find" and option in words:
                self.simple(words[words.index(option) + 1 :])


def called_by_python(text, name):
    for node in ast.walk(ast.parse(text, name)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)):
            continue
        owner, function = node.func.value.id, node.func.attr
        if owner == "os" and (function in ("system", "popen") or function.startswith(("exec", "spawn", "posix_spawn"))):
            mistakes.append(f"{name}:{node.lineno}: os.{function}; programs are started by subprocess, so that this test sees them")
        if owner == "subprocess" and node.args and isinstance(node.args[0], ast.List) and node.args[0].elts:
            first = node.args[0].elts[0]
            if isinstance(first, ast.Constant) and "/" not in first.value:
                yield first.value


def called_by_cmake(text):
    text = re.sub(r"#.*", "", text)
    for word in re.findall(r"\bCOMMAND\s+(?:\"?\$\{on_ranks\}\"?\s+)?([\"\w$<{.-][^\s\")]*)", text):
        if re.fullmatch(r"[a-z][a-z0-9+.-]*", word):
            yield word


def built(text):
    """Targets of CMake that stand after COMMAND."""
    return set(re.findall(r"(?:add_executable|remat_\w*example|remat_train|remat_study)\((\w+)", text))


def files(*patterns):
    return sorted({path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file() and "/build/" not in f"{path}"})


def calls():
    """Each file that calls programs, with these."""
    for path in files(".ci/*", "tests/**/*.sh", "examples/**/*.sh", "bench/**/*.sh"):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        if text.startswith("#!/usr/bin/env bash"):
            yield name, {"bash", *Shell(text, name).commands()}
    for path in files("tests/**/*.py", "examples/**/*.py", "bench/**/*.py", "docs/**/*.py"):
        name = str(path.relative_to(ROOT))
        yield name, set(called_by_python(path.read_text(), name))
    for path in files("CMakeLists.txt", ".cmake/*.cmake", *(f"{room}/**/{what}" for room in ("tests", "examples", "bench")
                                                            for what in ("CMakeLists.txt", "*.cmake"))):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        yield name, set(called_by_cmake(text)) - {word.replace("_", "-") for word in built(text)}
    starts = re.compile(r"\b(popen|std::system|exec[lv]p?e?|posix_spawnp?)\(")
    for path in files("tests/**/*.cpp", "tests/**/*.hpp", "examples/**/*.cpp", "examples/**/*.hpp", "bench/**/*.cpp"):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        if starts.search(re.sub(r"//.*", "", text).replace("std::system_error(", "")):
            if name not in STARTED_BY_CPP:
                mistakes.append(f"{name} starts a program ({starts.search(text)[0]}…); tests/programs.py must say which")
            yield name, set(STARTED_BY_CPP.get(name, ()))


known, listed = table(), packages()
used = set()
for name, programs in calls():
    group = next(group for start, group in CALLERS.items() if name.startswith(start))
    for program in sorted(programs - BUILTIN):
        where = known.get(program)
        used.add(program)
        if where is None:
            mistakes.append(f"{name} calls {program}, of which .ci/programs says nothing")
        elif where not in ("bare", "asked") and where not in listed[group]:
            mistakes.append(f"{name} calls {program} of the package {where}, which `.ci/install-packages {group}` does not install")
for program in sorted(known.keys() - used):
    mistakes.append(f".ci/programs: nothing calls {program}")
if mistakes:
    sys.exit("\n".join(mistakes))
print(f"{len(used)} programs, each of which is there")
