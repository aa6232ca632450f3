"""Users' files: every format, every way to choose a head, one sentence for every mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensor_files import write_safetensors

from softrank_exact import UserError
from softrank_exact.inputs import (
    load_array,
    load_matrix,
    load_qk,
    read_tensors,
    row_sum_warning,
)

HEADS = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
LAYERS = np.arange(48, dtype=np.float32).reshape(2, 2, 3, 4)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "uint8"])
def test_npy_is_read_exactly(tmp_path: Path, dtype: str) -> None:
    array = np.array([[0, 1], [3, 2]], dtype=dtype) / np.array(4).astype(dtype)
    array = array.astype(dtype)
    np.save(tmp_path / "a.npy", array)
    loaded = load_matrix(tmp_path / "a.npy")
    assert loaded.values.dtype == np.float64
    assert loaded.values.tolist() == array.astype(np.float64).tolist()
    assert loaded.dtype == dtype


@pytest.mark.parametrize(
    ("dtype", "stored", "value"),
    [
        ("F64", np.float64(1 / 3), 1 / 3),
        ("F32", np.float32(1 / 3), float(np.float32(1 / 3))),
        ("F16", np.float16(1 / 3), float(np.float16(1 / 3))),
        ("BF16", np.uint16(0x3EAB), 0.333984375),
        ("BF16", np.uint16(0xBF80), -1.0),
        ("I64", np.int64(-7), -7.0),
        ("U8", np.uint8(200), 200.0),
    ],
)
def test_safetensors_are_read_exactly(
    tmp_path: Path, dtype: str, stored: Any, value: float
) -> None:
    path = write_safetensors(tmp_path / "a.safetensors", A=(dtype, np.full((2, 3), stored)))
    assert load_matrix(path).values.tolist() == [[value] * 3] * 2


def test_choosing_a_head(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", heads=HEADS, layers=LAYERS, block=HEADS[0])
    path = tmp_path / "a.npz"
    assert load_matrix(path, key="heads", head=1).values.tolist() == HEADS[0, 1].tolist()
    assert load_matrix(path, key="block", head=0).values.tolist() == HEADS[0, 0].tolist()
    chosen = load_matrix(path, key="layers", layer=1, head=0)
    assert chosen.values.tolist() == LAYERS[1, 0].tolist()
    assert chosen.where == f"{path}: layers[1, 0]"


def test_a_layer_by_its_usual_name(tmp_path: Path) -> None:
    tensors = {"blocks.6.attn.hook_pattern": ("F32", HEADS), "other": ("F32", LAYERS)}
    path = write_safetensors(tmp_path / "a.safetensors", **tensors)
    assert load_matrix(path, layer=6, head=1).values.tolist() == HEADS[0, 1].tolist()


def test_a_single_head_needs_no_index(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", HEADS[:, :1])
    assert load_matrix(tmp_path / "a.npy").values.tolist() == HEADS[0, 0].tolist()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "has 2 tensors; accepted: --key with one of 'heads', 'layers'"),
        ({"key": "head"}, "no tensor 'head'; accepted: 'heads', 'layers'"),
        ({"key": "heads"}, "2 entries on its head axis; accepted: --head 0 to 1"),
        ({"key": "heads", "head": 2}, "--head is 2; accepted: 0 to 1"),
        ({"key": "heads", "head": -1}, "--head is -1; accepted: 0 to 1"),
        ({"key": "layers", "head": 0}, "2 entries on its batch axis; accepted: a batch of one"),
        ({"key": "layers", "layer": 5, "head": 0}, "--layer is 5; accepted: 0 to 1"),
    ],
)
def test_a_bad_choice_is_told(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "a.npz", heads=HEADS, layers=LAYERS)
    with pytest.raises(UserError, match=words):
        load_matrix(tmp_path / "a.npz", **options)


def test_a_matrix_has_no_axis_for_a_head(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", HEADS[0, 0])
    with pytest.raises(UserError, match=r"shape \(3, 4\): no axis for --head 0"):
        load_matrix(tmp_path / "a.npy", head=0)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ones(3), "shape"),
        (np.ones((0, 3)), "shape"),
        (np.ones((1, 1, 1, 1, 1)), "shape"),
        (np.ones((2, 2), dtype=complex), "complex128"),
        (np.ones((2, 2), dtype=bool), "bool"),
        (np.array([["a"]]), "dtype"),
        (np.array([[np.nan]]), "nan"),
        (np.array([[-np.inf]]), "-inf"),
        (np.array([[2**53 + 1]]), r"2\^53"),
    ],
)
def test_refused_arrays(tmp_path: Path, array: Any, words: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(UserError, match=f"a.npy.*{words}"):
        load_matrix(tmp_path / "a.npy")


def test_masks_are_for_logits(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[0.0, -np.inf]]))
    assert load_matrix(tmp_path / "a.npy", masks=True).values.tolist() == [[0.0, -np.inf]]


def test_queries_and_keys(tmp_path: Path) -> None:
    Q, K = np.ones((3, 2)), np.ones((4, 2))
    np.savez(tmp_path / "a.npz", Q=Q, K=K)
    np.savez(tmp_path / "b.npz", Q=Q, K=K, bias=np.zeros((3, 4)))
    assert load_qk(tmp_path / "a.npz")[2] is None
    assert np.shape(load_qk(tmp_path / "b.npz")[2]) == (3, 4)
    np.savez(tmp_path / "c.npz", Q=Q)
    with pytest.raises(UserError, match="no tensor 'K'"):
        load_qk(tmp_path / "c.npz")


def test_witness_arrays_have_any_shape(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.arange(3))
    assert load_array(tmp_path / "w.npy").tolist() == [0.0, 1.0, 2.0]
    np.save(tmp_path / "s.npy", np.array(["x"]))
    with pytest.raises(UserError, match="real numbers"):
        load_array(tmp_path / "s.npy")


def damaged(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        {".npy": np.save, ".npz": np.savez_compressed}.get(
            path.suffix, lambda p, a: write_safetensors(p, A=("F32", a))
        )(path, HEADS[0, 0])
        path.write_bytes(change(path.read_bytes()))

    return write


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
@pytest.mark.parametrize(
    "spoil",
    [
        damaged(lambda data: b""),
        damaged(lambda data: data[:20]),
        damaged(lambda data: data[:-5]),
        damaged(lambda data: b"garbage" + data),
        damaged(lambda data: data[: len(data) // 2] + b"\xff\x00" + data[len(data) // 2 :]),
        lambda path: None,
        lambda path: path.mkdir(),
    ],
    ids=["empty", "head", "short", "prefixed", "torn", "absent", "folder"],
)
def test_damaged_files_are_told(tmp_path: Path, suffix: str, spoil: Callable[[Path], None]) -> None:
    path = tmp_path / f"a{suffix}"
    spoil(path)
    with pytest.raises(UserError, match="a" + suffix):
        load_matrix(path)


@settings(deadline=None, max_examples=100)
@given(position=st.integers(0, 120), byte=st.integers(0, 255))
def test_damaged_headers_are_told_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, position: int, byte: int
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "a.safetensors"
    data = bytearray(write_safetensors(path, A=("F32", HEADS[0, 0])).read_bytes())
    data[position] = byte
    path.write_bytes(bytes(data))
    try:
        values = load_matrix(path).values
    except UserError:
        return
    assert values.size * 4 <= len(data)


def test_an_object_array_is_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[object()]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "b.npz", a=np.array([[None]], dtype=object))
    for name in ("a.npy", "b.npz"):
        with pytest.raises(UserError, match=name):
            load_matrix(tmp_path / name)


def test_unknown_suffixes_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"suffix '.csv'; accepted: .npy, .npz, .safetensors, .pt"):
        read_tensors(tmp_path / "a.csv")
    with pytest.raises(UserError, match=r"a.pt cannot be read: no such file"):
        read_tensors(tmp_path / "a.pt")


@pytest.mark.bridge
def test_pt_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.from_numpy(HEADS).to(torch.bfloat16), tmp_path / "a.pt")
    assert load_matrix(tmp_path / "a.pt", head=1).values.tolist() == HEADS[0, 1].tolist()
    torch.save({"A": torch.from_numpy(HEADS[0, 0])}, tmp_path / "b.pt")
    assert load_matrix(tmp_path / "b.pt", key="A").values.tolist() == HEADS[0, 0].tolist()
    (tmp_path / "c.pt").write_bytes(b"garbage")
    with pytest.raises(UserError, match=r"c.pt"):
        load_matrix(tmp_path / "c.pt")


def test_the_row_sum_warning() -> None:
    assert row_sum_warning(np.full((2, 4), 0.25)) is None
    assert row_sum_warning(np.full((2, 3), float(np.float16(1 / 3)))) is None
    assert "row 1 sums to 0.5, not 1" in str(row_sum_warning(np.array([[1.0, 0], [0.25, 0.25]])))
