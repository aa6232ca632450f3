"""The command line: exit codes, JSON, what is printed where, and nothing verified by accident."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softrank_exact import auditing, cli, commands, display, doctor, selftest
from softrank_exact.auditing import certificate_files, worst
from softrank_exact.certificate import audit_file
from softrank_exact.interrupts import unbroken

VECTORS = Path(__file__).parents[1] / "vectors"
INDEX = json.loads((VECTORS / "index.json").read_text())["vectors"]
FIELDS = [
    "file",
    "side",
    "rank",
    "kind",
    "verdict",
    "code",
    "needed",
    "found",
    "margin",
    "valid_from",
    "valid_to",
]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run one command line in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def vector(name: str) -> str:
    return str(VECTORS / f"{name}.softrank.safetensors")


def two_bit() -> None:
    """A(3/4, 1/2) of MATH 9.1 with witnesses for rank 2 at eps = 1/2, as files."""

    def K(t: float) -> np.ndarray[Any, Any]:
        return np.array([[1 + t, 1 - t], [1 - t, 1 + t]]) / 2

    A = np.kron(K(0.75), K(0.5))
    np.save("A.npy", A)
    np.save("X.npy", np.kron(K(0.75), np.ones((2, 1))))
    np.save("Y.npy", np.kron(np.eye(2), np.ones((1, 2)) / 2))
    same = np.arange(4)[:, None] // 2 == np.arange(4) // 2
    G = np.where(same, (1 + 4 / 3) / 4, (1 - 4 / 3) / 4)
    U, sigma, Vt = np.linalg.svd(np.eye(4) - G @ A)
    for name, array in {
        "c": np.arange(4),
        "G": G,
        "L": U[:, :2] * sigma[:2],
        "R": Vt[:2],
        "w": np.ones(4),
        "I": np.eye(4),
        "D": np.eye(4)[[0, 3]],
        "b": np.array([2]),
        "S": np.array([[1, 1, 1, 1], [1, 1, -1, -1]]),
    }.items():
        np.save(f"{name}.npy", array)


TWO_BIT = ("certify", "A.npy", "--eps", "1/2")
BOTH_SIDES = ("--upper", "X.npy,Y.npy", "--bernstein", "c.npy,G.npy,L.npy,R.npy")


# --- the frame ---------------------------------------------------------------------------------


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"softrank-exact {version('softrank-exact')}\n", "")


def test_help_names_every_exact_verb(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert all(f" {verb} " in out for verb in ("certify", "audit", "explain", "doctor"))


@pytest.mark.parametrize(
    "arguments",
    [("audit",), ("audit", "--bth", "x"), ("certify", "A.npy"), ("nonsense",)],
)
def test_usage_is_two(run: Run, arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_a_broken_package_breaks_no_other(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ghost = EntryPoint("ghost", "no_such_package.commands:register", cli.GROUP)
    core = EntryPoint("core", "softrank_exact.commands:register", cli.GROUP)
    monkeypatch.setattr(cli, "entry_points", lambda group: [ghost, core])
    assert run("audit", vector("factor"))[0] == 0
    code, _, err = run("haunt", "x")
    assert code == 2
    assert err == (
        "softrank: no command 'haunt' here; package no_such_package needs a package that cannot "
        "be imported here (No module named 'no_such_package')\n"
    )
    code, out, err = run("--help")
    assert (code, " audit " in out, "no_such_package" in err) == (0, True, True)


def test_checking_never_imports_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from softrank_exact.cli import main; main(sys.argv[1:]); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "audit", vector("factor")], capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "False"


def softrank(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    code = "import sys; from softrank_exact.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *arguments], text=True, **options)


def test_a_name_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    file = tmp_path / "t\u00eate.softrank.safetensors"
    shutil.copy(vector("factor"), file)
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = softrank("audit", str(file), env=env, capture_output=True)
    assert done.returncode == 0
    assert "t\\xeate.softrank" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_output_is_an_internal_error() -> None:
    with open("/dev/full", "w") as full:
        done = softrank("audit", vector("factor"), stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 70
    assert "Traceback" not in done.stderr


# --- certify -----------------------------------------------------------------------------------


def test_certify_both_sides(run: Run) -> None:
    two_bit()
    code, out, err = run(*TWO_BIT, *BOTH_SIDES, "-o", "two-bit.softrank.safetensors")
    assert (code, out) == (0, "2 <= r_eps <= 2 (exact) at eps = 1/2, matrix 4 x 4, A.npy\n")
    assert "written to two-bit.softrank.safetensors" in err
    audit = audit_file("two-bit.softrank.safetensors")
    assert [v.verdict for v in audit.verdicts] == ["verified", "verified"]
    assert (audit.lower, audit.upper) == (2, 2)


def test_certify_reports_what_a_rejected_witness_lacks(run: Run) -> None:
    two_bit()
    code, out, err = run(*TWO_BIT, *BOTH_SIDES, "--hs", "w.npy,I.npy,3", "--json")
    assert (code, err) == (1, "")
    found = json.loads(out)
    seconds = found.pop("seconds")
    claims = found.pop("claims")
    assert seconds >= 0
    assert found == {
        "file": "A.npy",
        "object": "matrix",
        "shape": [4, 4],
        "epsilon": "1/2",
        "lower": 2,
        "upper": 2,
        "exact": True,
        "alpha": "0/1",
        "budget": "within",
        "certificate": None,
    }
    assert [claim["verdict"] for claim in claims] == ["verified", "refuted", "verified"]
    assert [list(claim) for claim in claims] == [FIELDS[1:]] * 3
    lacking = claims[1]
    assert Fraction(lacking["margin"]) == Fraction(lacking["found"]) - Fraction(lacking["needed"])
    assert Fraction(lacking["margin"]) < 0
    _, _, table = run(*TWO_BIT, *BOTH_SIDES, "--hs", "w.npy,I.npy,3")
    assert all(word in table for word in ("refuted", "hilbert-schmidt", "> 0.25"))
    assert max(map(len, table.splitlines())) <= 80


def test_certify_says_that_only_trivial_claims_are_left(run: Run) -> None:
    two_bit()
    save = ("-o", "none.softrank.safetensors")
    code, _, err = run(*TWO_BIT, "--hs", "w.npy,I.npy,3", *save)
    assert (code, "only trivial claims written" in err) == (1, True)
    assert "only trivial" not in run(*TWO_BIT, *BOTH_SIDES, *save)[2]


def test_certify_finds_the_rank_of_a_hilbert_schmidt_witness(run: Run) -> None:
    two_bit()
    code, out, _ = run("certify", "A.npy", "--eps", "1/10", "--hs", "w.npy,I.npy")
    assert code == 0
    assert out.startswith("4 <= r_eps <= 4")


def test_certify_every_kind(run: Run) -> None:
    two_bit()
    mirror = ("--bernstein-rows", "c.npy,G.npy,L.npy,R.npy")
    more = ("--fantope", "I.npy,I.npy,I.npy,1", "--shattering", "D.npy,b.npy,S.npy")
    code, out, _ = run(*TWO_BIT, *BOTH_SIDES, *mirror, *more, "--hs", "w.npy,I.npy", "--json")
    claims = json.loads(out)["claims"]
    assert code == 0
    assert [claim["kind"] for claim in claims] == [
        "factor",
        "hilbert-schmidt",
        "bernstein",
        "bernstein-rows",
        "fantope",
        "shattering",
    ]


def test_certify_logits_and_qk(run: Run) -> None:
    generator = np.random.default_rng(0)
    Q, K = generator.normal(size=(6, 3)), generator.normal(size=(8, 3))
    np.savez("qk.npz", Q=Q, K=K)
    H = Q @ K.T / np.sqrt(3)
    np.save("H.npy", H)
    A = np.exp(H) / np.exp(H).sum(axis=1, keepdims=True)
    np.save("X.npy", np.eye(6))
    np.save("Y.npy", A)
    for name, options, words in (
        ("H.npy", ("--object", "logits"), "softmax of logits"),
        ("qk.npz", ("--object", "qk", "--over-sqrt", "3"), "softmax of Q K^T"),
    ):
        code, out, _ = run("certify", name, *options, "--eps", "1/4", "--upper", "X.npy,Y.npy")
        assert code == 0
        assert out == f"1 <= r_eps <= 6 at eps = 1/4, {words} 6 x 8, {name}\n"


def test_certify_warns_of_rows_that_do_not_sum_to_one(run: Run) -> None:
    two_bit()
    np.save("A.npy", 2 * np.load("A.npy"))
    _, _, err = run(*TWO_BIT, "--upper", "X.npy,Y.npy")
    assert "warning: row 0 sums to 2, not 1" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("certify", "B.npy", "--eps", "1/2"), "B.npy cannot be read: No such file"),
        (("certify", "A.npy", "--eps", "x"), "eps is 'x'; accepted"),
        (("certify", "A.npy", "--eps", "-1"), "eps is '-1'; accepted"),
        (TWO_BIT, "no witness given; accepted: --upper"),
        ((*TWO_BIT, "--object", "attention"), "--object is 'attention'; accepted: matrix"),
        ((*TWO_BIT, "--upper", "X.npy"), "--upper is 'X.npy'; accepted: X.npy,Y.npy"),
        ((*TWO_BIT, "--upper", "X.npy,X.npy"), "Y in X.npy has shape (4, 2); accepted: (2, 4)"),
        ((*TWO_BIT, "--hs", "I.npy,I.npy"), "w in I.npy has shape (4, 4); accepted: (4)"),
        ((*TWO_BIT, "--hs", "w.npy,I.npy,0"), "witness 0 (FloatHS, rank 0)"),
        ((*TWO_BIT, "--fantope", "I.npy,I.npy,I.npy"), "accepted: T.npy,w.npy,v.npy,RANK"),
        ((*TWO_BIT, "--fantope", "I.npy,Y.npy,Y.npy,1"), "w in Y.npy has 2 rows; accepted: 4"),
        ((*TWO_BIT, "--shattering", "D.npy,b.npy"), "accepted: D.npy,blocks.npy,Y.npy"),
        ((*TWO_BIT, "--shattering", "D.npy,b.npy,I.npy"), "witness 0 (FloatShattering, rank 2)"),
        ((*TWO_BIT, "--shattering", "D.npy,h.npy,S.npy"), "blocks has an entry that is no"),
        ((*TWO_BIT, "--bernstein", "G.npy,G.npy,L.npy,R.npy"), "columns in G.npy has shape (4, 4)"),
        ((*TWO_BIT, "--bernstein", "h.npy,G.npy,L.npy,R.npy"), "columns has an entry that is no"),
        ((*TWO_BIT, "--bernstein", "d.npy,G.npy,L.npy,R.npy"), "not strictly increasing"),
        ((*TWO_BIT, "--upper", "n.npy,Y.npy"), "X has an entry that is not finite"),
        (
            (*TWO_BIT, "--upper", "X.npy,Y.npy", "-o", "no/x.softrank.safetensors"),
            "no/x.softrank.safetensors cannot be written",
        ),
        ((*TWO_BIT, "-o", "x.npy"), "-o is x.npy; accepted: a name that ends in .softrank."),
        ((*TWO_BIT, "--scale", "2"), "--scale is 2; accepted: only with --object qk"),
        ((*TWO_BIT, "--over-sqrt", "3"), "--over-sqrt is 3; accepted: only with --object qk"),
        ((*TWO_BIT, "--object", "qk", "--key", "Q"), "--key is Q; accepted: only with --object"),
        ((*TWO_BIT, "--object", "qk", "--scale", "foo"), "--scale is 'foo'; accepted: a number"),
    ],
)
def test_a_mistake_is_one_sentence(run: Run, arguments: tuple[str, ...], words: str) -> None:
    two_bit()
    np.save("h.npy", np.arange(4) / 2)
    np.save("d.npy", np.array([0, 1, 1, 2]))
    np.save("n.npy", np.full((4, 2), np.nan))
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


# --- audit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", INDEX, ids=lambda case: str(case["id"]))
def test_audit_of_every_vector(run: Run, case: dict[str, Any]) -> None:
    code, out, err = run("audit", "--json", str(VECTORS / case["file"]))
    entries = json.loads(out)
    assert [[entry["verdict"], entry["code"]] for entry in entries] == case["verdicts"]
    assert [list(entry) for entry in entries] == [FIELDS] * len(entries)
    verdicts = {verdict for verdict, _ in case["verdicts"]}
    assert code == (0 if verdicts == {"verified"} else 4 if "malformed" in verdicts else 1)
    for entry in entries:
        for name in FIELDS[6:]:
            assert entry[name] is None or "/" in entry[name]
    assert err == ""


def test_audit_of_one_file(run: Run) -> None:
    code, out, err = run("audit", vector("bracket"))
    assert code == 0
    assert out.startswith("verified: 2 <= r_eps <= 2 (exact) at eps = 1/2, matrix 4 x 4, ")
    assert len(out.splitlines()) == 1
    assert "factor" in err


def test_audit_of_folders(run: Run) -> None:
    for name, folder in (("factor", "a"), ("trivial-too-much", "a/b"), ("malformed-nan", "c")):
        Path(folder).mkdir(exist_ok=True)
        shutil.copy(vector(name), folder)
    Path("a/notes.txt").write_text("not a certificate")
    code, out, err = run("audit", "a")
    assert code == 1
    assert [line.partition(" ")[0].rstrip(":") for line in out.splitlines()] == [
        "rejected",
        "verified",
    ]
    assert "2 files: 1 verified, 1 rejected" in err
    assert run("audit", "a", "c")[0] == 4
    _, out, err = run("audit", "c")
    assert out.startswith("malformed (value): target.A has an entry")
    assert err == ""


def test_severity() -> None:
    assert [worst(codes) for codes in ([0, 1, 4, 70], [0, 1, 4], [0, 1], [0])] == [70, 4, 1, 0]


def test_audit_of_nothing(run: Run) -> None:
    Path("empty").mkdir()
    assert run("audit", "empty")[0] == 2
    code, _, err = run("audit", "nowhere")
    assert code == 2
    assert err == ("softrank: nowhere does not exist; accepted: certificates, or folders of them\n")


def test_every_certificate_of_a_folder_is_found() -> None:
    assert len(certificate_files([VECTORS])) == len(INDEX)


def test_both_checkers(run: Run) -> None:
    files = [
        vector(name) for name in ("bracket", "refuted-upper", "malformed-hash", "logits-masked")
    ]
    code, out, err = run("audit", "--both", *files)
    assert code == 4
    assert len(out.splitlines()) == 4
    assert "both checkers agree on 4 files" in err


@pytest.mark.parametrize(
    "answer",
    [
        '[{"side": "upper", "rank": 2, "kind": "factor", "verdict": "rejected", "code": "margin"}]',
        "[]",
        '[{"verdict": "verified"}]',
        "nonsense",
        "",
    ],
)
def test_a_disagreement_is_seventy_and_verifies_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str
) -> None:
    other = tmp_path / "other.py"
    other.write_text(f"print({answer!r})")
    monkeypatch.setattr(auditing, "MINICHECK", other)
    code, out, _ = run("audit", "--both", vector("bracket"))
    assert code == 70
    assert out.startswith("checkers disagree: ")
    assert "verified:" not in out
    code, out, _ = run("audit", "--both", "--json", vector("bracket"))
    assert code == 70
    assert {entry["verdict"] for entry in json.loads(out)} == {"rejected"}


def test_a_contradiction_is_seventy_and_verifies_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = audit_file(vector("bracket"))
    wrong = replace(
        audit,
        verdicts=tuple(replace(v, rank=3) if v.side == "lower" else v for v in audit.verdicts),
    )
    monkeypatch.setattr(auditing, "audit_file", lambda path: wrong)
    code, out, _ = run("audit", vector("bracket"))
    assert code == 70
    assert out.startswith("contradiction: 3 <= r_eps and r_eps <= 2 both pass")
    monkeypatch.setattr(commands, "audit_file", lambda path: wrong)
    code, out, _ = run("explain", vector("bracket"))
    assert code == 70
    assert "verified" not in out


def test_an_internal_error_is_seventy_and_verifies_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(auditing, "audit_file", fail)
    code, out, err = run("audit", vector("bracket"))
    assert (code, out) == (70, "")
    assert "internal error (ZeroDivisionError)" in err


def test_about_my_matrix(run: Run) -> None:
    two_bit()
    run(*TWO_BIT, *BOTH_SIDES, "-o", "mine.softrank.safetensors")
    A = np.load("A.npy")
    A[0, 0] += 2.0**-20
    np.save("other.npy", A)
    np.save("wide.npy", np.ones((4, 5)))
    audit = ("audit", "mine.softrank.safetensors", "--against")
    code, out, _ = run(*audit, "A.npy")
    assert code == 0
    assert "yes: A.npy is the certified matrix, exactly" in out
    code, out, _ = run(*audit, "other.npy")
    assert code == 1
    assert "no: other.npy is not the certified matrix" in out
    assert "9.5367e-7" in out
    code, out, _ = run(*audit, "wide.npy")
    assert (code, "no: wide.npy is 4 x 5, the certified matrix 4 x 4" in out) == (1, True)
    code, out, _ = run(*audit, "other.npy", "--json")
    assert [entry["against"] for entry in json.loads(out)] == [False, False]
    _, _, err = run("audit", vector("factor"), vector("logits-masked"), "--against", "A.npy")
    assert "2 files: 2 verified, 1 not about the matrix of --against" in err


def test_about_my_logits_and_queries(run: Run) -> None:
    H = np.array([[0.0, 1.0], [-np.inf, 2.0]])
    np.save("H.npy", H)
    np.save("I.npy", np.eye(2))
    shared = ("--eps", "1/4", "--upper", "I.npy,A.npy", "-o", "mine.softrank.safetensors")
    A = np.exp(H) / np.exp(H).sum(axis=1, keepdims=True)
    np.save("A.npy", A)
    assert run("certify", "H.npy", "--object", "logits", *shared)[0] == 0
    audit = ("audit", "mine.softrank.safetensors", "--against")
    assert run(*audit, "H.npy")[0] == 0
    code, out, _ = run(*audit, "A.npy")
    assert code == 1
    assert "as an attention matrix it is" in out
    H[0, 0] = -np.inf
    np.save("H.npy", H)
    assert run(*audit, "H.npy")[0] == 1
    Q, K = np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])
    np.savez("qk.npz", Q=Q, K=K)
    np.savez("kq.npz", Q=Q, K=K.T)
    np.savez("bias.npz", Q=Q, K=K, bias=np.zeros((2, 2)))
    np.save("A.npy", np.exp(K.T) / np.exp(K.T).sum(axis=1, keepdims=True))
    assert run("certify", "qk.npz", "--object", "qk", *shared)[0] == 0
    assert [run(*audit, name)[0] for name in ("qk.npz", "kq.npz", "bias.npz", "A.npy")] == [
        0,
        1,
        1,
        1,
    ]


# --- interrupts --------------------------------------------------------------------------------


def test_a_swallowed_interrupt_still_ends_a_check() -> None:
    with pytest.raises(KeyboardInterrupt), unbroken(), suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with unbroken():
        pass


def test_an_interrupt_during_a_check_verifies_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swallow(path: Path) -> Any:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return audit_file(path)

    monkeypatch.setattr(auditing, "audit_file", swallow)
    assert run("audit", vector("bracket")) == (130, "", "softrank: interrupted\n")


def test_a_real_interrupt(tmp_path: Path) -> None:
    """SIGINT to a process in the middle of a check."""
    code = (
        "import sys, softrank_exact.auditing as a; from softrank_exact.cli import main; "
        "check = a.audit_file\n"
        "def slow(path):\n"
        "    print('checking', file=sys.stderr, flush=True)\n"
        "    while True: check(path)\n"
        "a.audit_file = slow\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "audit", vector("bracket")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "checking\n"
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "softrank: interrupted\n")


INTERRUPTED_IMPORT = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from softrank_main import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("handler", "code", "said"),
    [
        ("default_int_handler", 130, "softrank: interrupted\n"),
        ("SIG_IGN", 0, ""),
    ],
    ids=["foreground", "background"],
)
def test_an_interrupt_while_the_command_line_loads(handler: str, code: int, said: str) -> None:
    prelude = f"import signal; signal.signal(signal.SIGINT, signal.{handler})"
    done = subprocess.run(
        [sys.executable, "-c", prelude + INTERRUPTED_IMPORT, "--version"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (code, said)
    assert entry_points(group="console_scripts")["softrank"].value == "softrank_main:main"


@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({"OMP_NUM_THREADS": "3"}, "3")])
def test_one_thread_unless_the_user_says_otherwise(given: dict[str, str], threads: str) -> None:
    code = (
        "import os, sys, softrank_main; code = softrank_main.main(); "
        "print(os.environ['OMP_NUM_THREADS']); sys.exit(code)"
    )
    outer = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code, "audit", vector("bracket")],
        capture_output=True,
        text=True,
        env=outer | given,
    )
    assert done.stdout.splitlines()[-1] == threads


# --- explain -----------------------------------------------------------------------------------


WELL_FORMED = [case for case in INDEX if case["verdicts"][0][0] != "malformed"]


@pytest.mark.parametrize("case", WELL_FORMED, ids=lambda case: str(case["id"]))
def test_explain_every_vector(run: Run, case: dict[str, Any]) -> None:
    _, out, err = run("explain", "--json", str(VECTORS / case["file"]))
    told = json.loads(out)
    assert [[c["verdict"], c["code"]] for c in told["claims"]] == case["verdicts"]
    assert err == ""
    for claim in told["claims"]:
        facts = claim["explanation"]
        tighter = "to tighten" if claim["verdict"] == "verified" else "to mend"
        assert list(facts) == ["by", "margin", "valid for", tighter]
        assert "(MATH" in facts["by"] or "(theory" in facts["by"]
        assert all(facts.values())
    _, out, _ = run("explain", str(VECTORS / case["file"]))
    assert max(map(len, out.splitlines()[1:])) <= 80


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bracket", ["MATH 5.3", "MATH 4.1", "the bracket is exact at this eps"]),
        ("hilbert-schmidt", ["MATH 5.2", "a certified bound and not the truth"]),
        ("fantope", ["MATH 5.4", "a certified bound and not the truth"]),
        ("shattering", ["theory 5.8", "with any signs", "a witness for rank 3"]),
        ("logits-masked", ["exact softmax, row by row, of the logits", "masked"]),
        ("qk", ["exact softmax, row by row, of c Q K^T"]),
        ("fantope-basis", ["the check ended before it came to eps"]),
        ("slack-upper", ["needed"]),
    ],
)
def test_explain_in_words(run: Run, name: str, words: list[str]) -> None:
    _, out, _ = run("explain", vector(name))
    text = " ".join(out.split())
    assert [word for word in words if word not in text] == []


def test_explain_knows_whether_a_spectral_witness_proves_more(run: Run) -> None:
    two_bit()
    save = ("-o", "hs.softrank.safetensors")
    run("certify", "A.npy", "--eps", "1/10", "--hs", "w.npy,I.npy,2", *save)
    assert "claim rank 3: this very witness proves it" in run("explain", save[1])[1]
    run("certify", "A.npy", "--eps", "2/5", "--hs", "w.npy,I.npy", *save)
    assert "does not prove rank" in " ".join(run("explain", save[1])[1].split())


def test_explain_malformed(run: Run) -> None:
    code, out, _ = run("explain", vector("malformed-hash"))
    assert code == 4
    assert out.startswith("malformed (hash): ")


# --- doctor ------------------------------------------------------------------------------------


@pytest.fixture
def quick_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TEST_SIZE", 2)
    monkeypatch.setattr(doctor, "TEST_COPIES", 2)
    monkeypatch.setattr(doctor, "_devices", lambda: "cpu")


@pytest.mark.usefixtures("quick_doctor")
def test_doctor(run: Run) -> None:
    code, out, _ = run("doctor")
    assert code == 0
    assert out.splitlines()[-1] == "healthy: certificates can be checked here"
    assert "passed: a 4 x 4096 x 4 product" in out
    code, out, _ = run("doctor", "--json")
    found = json.loads(out)
    assert found["trustworthy"] is True
    assert found["numpy"] == np.__version__
    assert found["minicheck"] == "present"


class Inexact(selftest.Limbs):
    """A product that is wrong in one entry by one unit."""

    def __matmul__(self, other: selftest.Limbs) -> selftest.Limbs:
        product = super().__matmul__(other)
        change = np.zeros(product.shape, dtype=np.int64)
        change[-1, -1] = 1
        return product + selftest.Limbs.of(change)


@pytest.mark.usefixtures("quick_doctor")
@pytest.mark.parametrize("verb", ["doctor", "audit", "explain"])
def test_inexact_arithmetic_is_seventy_and_verifies_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(selftest, "Limbs", Inexact)
    code, out, err = run(verb, *([] if verb == "doctor" else [vector("bracket")]))
    assert code == 70
    assert "self-test failed" in " ".join((out + err).split())
    assert "verified" not in out


# --- numbers -----------------------------------------------------------------------------------


@given(st.fractions())
def test_decimals_are_rounded_outward(value: Fraction) -> None:
    assert Fraction(Decimal(display.below(value))) <= value
    assert Fraction(Decimal(display.above(value))) >= value


@given(st.fractions(min_value=Fraction(1, 10**30), max_value=10**30))
def test_decimals_are_near(value: Fraction) -> None:
    below, above = (Fraction(Decimal(f(value))) for f in (display.below, display.above))
    assert above - below <= value / 10 ** (display.DIGITS - 1)
    assert (above == below) == (below == value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(1, 4), "0.25"),
        (Fraction(1200), "1200"),
        (Fraction(-1, 3), "-0.33334"),
        (Fraction(1, 3 * 10**9), "3.3333e-10"),
        (Fraction(10**40), "1e+40"),
    ],
)
def test_decimals_read_well(value: Fraction, text: str) -> None:
    assert display.below(value) == text
