"""References in brackets lead somewhere: a comment cites a promise, a section of the protocol, a paper, an ADR or a file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.test_repository import expect_none, list_files

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src/", "tests/", "bench/", "scripts/", "docs/", "examples/")
HASH_COMMENTS = {".sh", ".toml", ".yml", ".yaml", ".cfg"}
# Documents that define ids may also name them without brackets.
DEFINING = {"SECURITY.md", "docs/papers.md", "docs/promises.md", "docs/reference/bad-input.md"}
UNCHECKED = {"CHANGELOG.md"}  # a record of the past, in the words of its day

ROW = re.compile(r"^\| (\S[^|`]{0,20}) \|", re.M)
PAPER = re.compile(r"^## ([A-Z]{3,6}): .*$", re.M)
SECTION = re.compile(r"^#{2,3} (\d+(?:\.\d+)*)\.? ", re.M)
DECISION = re.compile(r"^(?:- \*\*|## )(S\d+) |\*\*(S\d+) [A-Z]", re.M)
FILE = re.compile(r"[\w./-]+\.(?:md|toml|py)")

BRACKET = re.compile(r"\[([^\[\]]{1,160})\](\(?)")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)")
OLD_WORDS = ("contract", "promises", "architecture", "conventions", "vision")
# An id such as `I13` or `B0.4` that does not say which page it is from, and sections of papers outside the repository.
OLD_ID = r"(?<![\w.#~/-])[A-EGIJRSU]\d{1,2}(?:\.\d|-[A-Z]\d{1,2})?(?![\w(]|[.-]\w)"
OLD_SECTION = rf"\b(?i:{'|'.join(OLD_WORDS)}) (?:C rule \d|\d+|[A-EGIRS]\d*)\b"
OLD = re.compile(f"{OLD_SECTION}|{OLD_ID}")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.S)
LINE_END = "\n"
MENTION = re.compile(r"\[(?:promise|protocol|security|input|[A-Z]{3,6})\s|\.(?:md|toml|py)\]")  # may be a reference


@dataclass
class Targets:
    """What may be cited: the keys of each page by the word that names it, and the files of the repository."""

    keys: dict[str, set[str]]
    files: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Passage:
    """Text for people in a file: a comment, a docstring, or a document."""

    path: str
    line: int
    text: str


def read(root: Path, path: str) -> str:
    file = root / path
    return file.read_text("utf-8") if file.is_file() else ""


def find_targets(root: Path) -> Targets:
    """Read what the pages define."""
    files = set(list_files(root))
    keys = {
        "promise": set(ROW.findall(read(root, "docs/promises.md"))),
        "protocol": set(SECTION.findall(read(root, "docs/protocol.md"))),
        "security": {one or other for one, other in DECISION.findall(read(root, "SECURITY.md"))},
        "input": set(ROW.findall(read(root, "docs/reference/bad-input.md"))),
        "ADR": {Path(name).name[:4] for name in files if re.match(r"docs/adr/\d{4}-", name)},
    }
    papers = read(root, "docs/papers.md")
    heads = [*PAPER.finditer(papers)]
    for head, end in zip(heads, [*(head.start() for head in heads[1:]), len(papers)], strict=True):
        keys[head[1]] = set(ROW.findall(papers[head.start() : end]))
    return Targets(keys, files)


def expand(key: str) -> list[str]:
    """`E20-E22` stands for its two ends; what lies between need not exist."""
    found = re.fullmatch(r"([A-Z]\d+)-([A-Z]\d+)", key)
    return [found[1], found[2]] if found else [key]


def is_reference(text: str, targets: Targets) -> bool:
    """Is this, the inside of a bracket, meant to lead somewhere?"""
    word, _, rest = " ".join(text.split()).partition(" ")
    return (word in targets.keys and bool(rest)) or FILE.fullmatch(text) is not None


def check_reference(text: str, targets: Targets) -> list[str]:
    """What of a reference leads nowhere: `promise I11, I12; ADR 0020`."""
    missing = []
    for part in " ".join(text.split()).split("; "):
        word, _, rest = part.partition(" ")
        if FILE.fullmatch(part):
            missing += [] if part in targets.files else [part]
        elif word not in targets.keys:
            missing.append(part)
        else:
            keys = [one for key in rest.split(", ") for one in expand(key)]
            missing += [f"{word} {key}" for key in keys if key not in targets.keys[word]]
    return missing


# --- the text for people in each kind of file
def read_python(path: str, text: str) -> Iterator[Passage]:
    """Comments, those of neighbouring lines together, and strings that stand alone, as docstrings do."""
    if not (MENTION.search(text) or OLD.search(text)):
        return  # most files: reading them closely takes seconds
    block: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line = token.start[0]
            if block and line != last + 1:
                yield Passage(path, begin, "\n".join(block))
                block = []
            begin, last = (begin if block else line), line
            block.append(token.string.lstrip("# "))
    if block:
        yield Passage(path, begin, "\n".join(block))
    for vertex in ast.walk(ast.parse(text)):
        if (
            isinstance(vertex, ast.Expr)
            and isinstance(vertex.value, ast.Constant)
            and isinstance(vertex.value.value, str)
        ):
            yield Passage(path, vertex.lineno, vertex.value.value)


def read_comments(path: str, text: str, mark: str) -> Iterator[Passage]:
    """What stands behind a mark, line by line; neighbouring lines together."""
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        _, found, words = line.partition(mark)
        if found:
            block.append(words)
        elif block:
            yield Passage(path, number - len(block), "\n".join(block))
            block = []


def read_passages(root: Path) -> Iterator[Passage]:
    """All text for people in the repository."""
    for path in list_files(root):
        suffix = Path(path).suffix
        if path in UNCHECKED or not (path.startswith(FOLDERS) or (suffix == ".md" and "/" not in path)):
            continue
        if suffix == ".py":
            yield from read_python(path, read(root, path))
        elif suffix == ".sql":
            yield from read_comments(path, read(root, path), "--")
        elif suffix in HASH_COMMENTS:
            yield from read_comments(path, read(root, path), "#")
        elif suffix == ".md":
            yield Passage(path, 1, read(root, path))


def check_references(root: Path, passages: Iterable[Passage] | None = None) -> list[str]:
    """References that lead nowhere, and ids that do not say where they lead."""
    targets = find_targets(root)
    return [
        f"{passage.path}:{passage.line + text.count(LINE_END, 0, at)}: {complaint}"
        for passage in (read_passages(root) if passages is None else passages)
        for text in [CODE.sub(lambda code: "`" + LINE_END * code[0].count(LINE_END) + "`", passage.text)]
        for at, complaint in check_text(root, passage.path, text, targets)
    ]


def check_text(root: Path, path: str, text: str, targets: Targets) -> Iterator[tuple[int, str]]:
    """What is wrong in one text, and where."""
    bare = text
    for bracket in BRACKET.finditer(text):
        is_link = path.endswith(".md") and bool(bracket[2])
        if is_reference(bracket[1], targets) and not (is_link and FILE.fullmatch(bracket[1])):
            yield from ((bracket.start(), f"[{key}] leads nowhere") for key in check_reference(bracket[1], targets))
            bare = bare[: bracket.start()] + " " * len(bracket[0]) + bare[bracket.end() :]
    if path.endswith(".md"):
        for link in LINK.finditer(text):
            if not (root / path).parent.joinpath(link[1]).exists():
                yield link.start(), f"{link[1]} is not there"
    if path not in DEFINING:
        yield from ((old.start(), f"{old[0]} does not say which page it is from") for old in OLD.finditer(bare))


# --- the rule holds on this repository
@pytest.fixture(scope="module")
def passages() -> list[Passage]:
    """All text for people in this repository."""
    return list(read_passages(ROOT))


def test_every_reference_leads_somewhere(passages: list[Passage]) -> None:
    expect_none(check_references(ROOT, passages))


def test_every_page_defines_something_that_can_be_cited() -> None:
    keys = find_targets(ROOT).keys
    assert {"promise", "protocol", "security", "input", "ADR", "LBO", "SPHINX", "DIANE", "GWP", "CMS"} == set(keys)
    assert all(keys.values())
    assert {"I1", "I13", "R4"} <= keys["promise"]
    assert {"5", "5.3", "10"} <= keys["protocol"]
    assert {"4.3", "table 3", "G10"} <= keys["GWP"]


def test_references_are_in_use(passages: list[Passage]) -> None:
    """Were brackets no longer found, the rule above would hold by itself."""
    targets = find_targets(ROOT)
    found = [
        bracket[1].split()[0]
        for passage in passages
        for bracket in BRACKET.finditer(passage.text)
        if is_reference(bracket[1], targets)
    ]
    assert {"promise", "protocol", "security", "input", "ADR", "LBO", "SPHINX", "DIANE", "GWP", "CMS"} <= set(found)
    assert len(found) > 150


# --- and is broken by planted references
PAGES = {
    "docs/promises.md": "| | promise |\n|---|---|\n| I1 | it is kept |\n| R4 | a rule |\n",
    "docs/protocol.md": "## 5. Exchange\n\n### 5.3 Leases\n",
    "docs/papers.md": "## GWP: pilots\n| G10 | checkpoints |\n| table 3 | options |\n\n## CMS: cache\n| C1 | x |\n",
    "docs/reference/bad-input.md": "| E44 | a file | refused |\n| E46 | a path | refused |\n",
    "docs/adr/0009-functions.md": "# 0009\n",
    "SECURITY.md": "## S0 Who\n- **S1 Tokens** expire. **S17 Revocation**: at once\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository with one page of each kind."""
    for path, text in PAGES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "src").mkdir()
    return tmp_path


GOOD = [
    "[promise I1]", "[promise I1, R4; ADR 0009]", "[protocol 5]", "[protocol 5.3]", "[security S1, S17]", "[security S0]",
    "[input E44-E46]", "[GWP G10]", "[GWP table 3]", "[CMS C1]", "[docs/protocol.md]", "[SECURITY.md]",
    "[promise I1,\n    R4]", "[promise\n    I1]", "a list[int] of [y/N], r12.7#2, x[0]", "P50 and `[I13]`",
]  # fmt: skip
DANGLING = [
    ("[promise I99]", "[promise I99] leads nowhere"),
    ("[promise I1, I99]", "[promise I99] leads nowhere"),
    ("[promise I1; nonsense 3]", "[nonsense 3] leads nowhere"),
    ("[protocol 7]", "[protocol 7] leads nowhere"),
    ("[security S2]", "[security S2] leads nowhere"),
    ("[input E44-E50]", "[input E50] leads nowhere"),
    ("[GWP C1]", "[GWP C1] leads nowhere"),
    ("[GWP 9.9]", "[GWP 9.9] leads nowhere"),
    ("[ADR 0099]", "[ADR 0099] leads nowhere"),
    ("[docs/nothing.md]", "[docs/nothing.md] leads nowhere"),
]
OLD_FORMS = {
    "[I13]": ["I13"],
    "(A6)": ["A6"],
    "(A7, I7)": ["A7", "I7"],
    "as S8 says": ["S8"],
    "[B0.4]": ["B0.4"],
    "E60.": ["E60"],
    "E63: 429": ["E63"],
    "[contract 5]": ["contract 5"],
    "Contract 9, S2": ["Contract 9", "S2"],
    "[promises E44]": ["promises E44"],
    "[promises C rule 2]": ["promises C rule 2"],
    "[E20-E22]": ["E20-E22"],
}
WAYS: dict[str, Callable[[str], str]] = {
    "src/a.py": lambda text: f'"""What it is {text}"""\n',
    "src/b.py": lambda text: "x = 1  # why " + text.replace("\n    ", "\n#") + "\n",
    "src/c.py": lambda text: f'def f() -> None:\n    """{text}"""\n',
    "src/d.sql": lambda text: "-- " + text.replace("\n", "\n-- ") + "\nSELECT 1;\n",
    "docs/e.md": lambda text: f"# Title\n\nWords {text} and more.\n",
    "tests/f.sh": lambda text: "# " + text.replace("\n", "\n# ") + "\ntrue\n",
}


def plant(tree: Path, text: str) -> dict[str, list[str]]:
    """Write it into a file of each kind; what is said of each, without the line."""
    for path, way in WAYS.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(way(text), encoding="utf-8")
    said: dict[str, list[str]] = {path: [] for path in WAYS}
    for complaint in check_references(tree):
        said[complaint.split(":")[0]].append(complaint.split(": ", 1)[1])
    return said


@pytest.mark.parametrize("text", GOOD)
def test_a_reference_that_leads_somewhere_passes(tree: Path, text: str) -> None:
    assert plant(tree, text) == {path: [] for path in WAYS}


@pytest.mark.parametrize(("text", "complaint"), DANGLING, ids=[text for text, _ in DANGLING])
def test_a_dangling_reference_is_caught(tree: Path, text: str, complaint: str) -> None:
    assert plant(tree, text) == {path: [complaint] for path in WAYS}


@pytest.mark.parametrize("text", OLD_FORMS)
def test_an_id_without_the_name_of_its_page_is_caught(tree: Path, text: str) -> None:
    complaints = [f"{old} does not say which page it is from" for old in OLD_FORMS[text]]
    assert plant(tree, text) == dict.fromkeys(WAYS, complaints)


def test_code_is_not_looked_at(tree: Path) -> None:
    (tree / "src/a.py").write_text('x = ["I13"]\ny = "[promise I99] (A6)"\nz = x[0]\n', encoding="utf-8")
    (tree / "docs/e.md").write_text("`[promise I99]`\n\n```\n[I13]\n```\n", encoding="utf-8")
    assert check_references(tree) == []


def test_a_link_to_a_missing_page_is_caught(tree: Path) -> None:
    text = "[a page](protocol.md), [another](nothing.md#x), [promise I1](promises.md), [web](https://example.org)\n"
    (tree / "docs/e.md").write_text(text, encoding="utf-8")
    assert check_references(tree) == ["docs/e.md:1: nothing.md is not there"]


def test_the_line_of_a_dangling_reference_is_named(tree: Path) -> None:
    (tree / "docs/e.md").write_text("one\n\n```\ntwo\n```\nthree [ADR 0099]\n", encoding="utf-8")
    assert check_references(tree) == ["docs/e.md:6: [ADR 0099] leads nowhere"]
