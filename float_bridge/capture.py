"""Attention heads of a transformers model, as the model really computed them.

``capture`` runs a model once and records, through the attention interface of transformers, the
queries and keys that each attention layer multiplied (after rotary embedding), the scale, the mask
or additive bias, and the weights that the model's own eager attention returned
(``softrank_exact.captures`` reads the file back).

Nothing that changes the logits is dropped silently: an argument of the attention function that is
not understood here is refused by name, and every layer is compared with the softmax of what was
recorded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from softrank_exact.captures import FORMAT, METADATA_KEY, Capture
from softrank_exact.errors import UserError

from .tensorfile import TensorFile

# transformers is imported where it is needed: it takes seconds, and reading needs none of it.
if TYPE_CHECKING:
    from transformers import PreTrainedModel

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

_IMPLEMENTATION = "softrank_record"
# Arguments of an attention function that leave the logits alone in the eager functions of
# transformers (the mask already carries causality and sliding windows).
_HARMLESS = frozenset(
    {
        "cache_position",
        "deterministic",
        "is_causal",
        "layer_idx",
        "num_items_in_batch",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "past_key_values",
        "position_embeddings",
        "position_ids",
        "return_dict",
        "sliding_window",
        "use_cache",
    }
)
_REFUSED = {
    "s_aux": "an attention sink",
    "sinks": "an attention sink",
    "softcap": "a soft cap of the logits",
}

Inputs = str | Sequence[int] | Mapping[str, torch.Tensor]


def capture(
    model: str | Path | PreTrainedModel,
    inputs: Inputs,
    path: str | Path,
    *,
    dtype: str = "float64",
    tokens: int | None = None,
    prefix: int | None = None,
    on_layer: Callable[[str], None] | None = None,
) -> Capture:
    """Run a model once and write every attention head to ``path`` (safetensors).

    ``model``: a model folder, a hub name in the local cache (nothing is downloaded),
    ``package:NAME/FOLDER`` for a model inside an installed package, or a loaded model (whose dtype
    then stays). ``inputs``: a text (tokenised by the model's tokenizer), token ids, or the model's
    keyword arguments as tensors. ``tokens``: keep the first so many tokens. ``prefix``: also
    record, for every later query, the weight that it has on the first ``prefix`` keys (what
    ``CapturedHead.common_support`` retains). ``on_layer`` is called with each module's name as it
    is recorded.

    Tensors of the file, for attention call i: ``layers.i.query`` [batch, head, query_pos, d_head],
    ``layers.i.key`` [batch, key_head, key_pos, d_head], ``layers.i.bias`` (broadcast over batch and
    head, minus infinity where masked), ``layers.i.weights`` [batch, head, query_pos, key_pos] and,
    with ``prefix``, ``layers.i.retained_mass`` [batch, head, query_pos - prefix].

    A model outside the attention interface is run with eager attention and ``output_attentions``,
    with a warning: its heads offer only the object ``matrix``. Raises ``UserError`` for a model
    that cannot be loaded, a sink, soft cap or other argument that changes the logits, weights that
    are NaN, and weights that are not the softmax of what was recorded.
    """
    if prefix is not None and not prefix > 0:
        raise UserError(f"prefix is {prefix}; accepted: a positive number of keys")
    network = _load(str(model), dtype) if isinstance(model, str | Path) else model
    text = inputs if isinstance(inputs, str) else None
    arguments = _arguments(str(model), inputs, tokens)
    path = Path(path)
    with TensorFile(path) as file, _quiet_inference(network):
        recorder = _Recorder(file, _module_names(network), prefix, on_layer)
        if _follows_interface(network):
            _run_recorded(network, arguments, recorder)
        else:
            _run_eager(network, arguments, recorder)
        info = {
            "format": FORMAT,
            "model": _name(model),
            "model_type": network.config.model_type,
            "revision": getattr(network.config, "_commit_hash", None) or _weights_hash(network),
            "dtype": str(network.dtype).removeprefix("torch."),
            "prefix": prefix,
            "text_sha256": None if text is None else hashlib.sha256(text.encode()).hexdigest(),
            "input_ids": _listed(arguments.get("input_ids")),
            "transformers": version("transformers"),
            "torch": torch.__version__,
            "layers": recorder.layers,
        }
        file.close({METADATA_KEY: json.dumps(info, sort_keys=True)})
    return Capture(path, info)


class _Recorder:
    """Writes each attention call to the file and keeps its description."""

    def __init__(
        self,
        file: TensorFile,
        names: Mapping[int, str],
        prefix: int | None,
        on_layer: Callable[[str], None] | None,
    ) -> None:
        self.layers: list[dict[str, Any]] = []
        self._file = file
        self._names = names
        self._prefix = prefix
        self._on_layer = on_layer

    def attention(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None,
        arguments: Mapping[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The model's own eager attention, recorded."""
        name = self._names.get(id(module), type(module).__name__)
        position_bias = arguments.get("position_bias")
        _refuse_unknown(name, arguments)
        output, weights = _eager_function(module)(
            module, query, key, value, attention_mask, scaling=scaling, **arguments
        )
        scale = float(query.shape[-1] ** -0.5 if scaling is None else scaling)
        bias = _bias(query, key, attention_mask, position_bias)
        _compare(name, query, key, scale, bias, weights)
        prefix = f"layers.{len(self.layers)}"
        self._file.add(f"{prefix}.query", query)
        self._file.add(f"{prefix}.key", key)
        if bias is not None:
            self._file.add(f"{prefix}.bias", bias)
        self._add(name, weights, key_heads=key.shape[1], scaling=scale)
        return output, weights

    def weights(self, name: str, weights: torch.Tensor) -> None:
        """Record a layer of which only the weights are known."""
        _refuse_nan(name, weights)
        self._add(name, weights, key_heads=weights.shape[1], scaling=1.0)

    def _add(self, name: str, weights: torch.Tensor, *, key_heads: int, scaling: float) -> None:
        batch, heads, m, n = weights.shape
        place = f"layers.{len(self.layers)}"
        self._file.add(f"{place}.weights", weights)
        if self._prefix is not None:
            late = weights[..., self._prefix :, : self._prefix].double()
            self._file.add(f"{place}.retained_mass", late.sum(dim=-1))
        self.layers.append(
            {
                "module": name,
                "batch": batch,
                "heads": heads,
                "key_heads": key_heads,
                "shape": [m, n],
                "scaling": scaling.hex(),
            }
        )
        if self._on_layer is not None:
            self._on_layer(name)


_recorder: ContextVar[_Recorder] = ContextVar("recorder")


def _record(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **arguments: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The attention function that transformers calls while a capture runs."""
    return _recorder.get().attention(module, query, key, value, attention_mask, scaling, arguments)


def _run_recorded(
    network: PreTrainedModel, arguments: Mapping[str, torch.Tensor], recorder: _Recorder
) -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask

    AttentionInterface.register(_IMPLEMENTATION, _record)
    ALL_MASK_ATTENTION_FUNCTIONS.register(_IMPLEMENTATION, eager_mask)
    before = network.config._attn_implementation
    token = _recorder.set(recorder)
    try:
        network.set_attn_implementation(_IMPLEMENTATION)
        _forward(network, arguments)
    finally:
        _recorder.reset(token)
        network.set_attn_implementation(before)
    if not recorder.layers:
        raise UserError(
            f"{type(network).__name__} made no attention call: there is no head to record"
        )


def _run_eager(
    network: PreTrainedModel, arguments: Mapping[str, torch.Tensor], recorder: _Recorder
) -> None:
    warnings.warn(
        f"{type(network).__name__} does not use the attention interface of transformers: only the "
        "attention weights are recorded, so its heads offer object matrix but not logits or qk",
        stacklevel=4,
    )
    outputs = _forward(network, {**arguments, "output_attentions": True})
    attentions = getattr(outputs, "attentions", None)
    if not attentions or any(weights is None for weights in attentions):
        raise UserError(
            f"{type(network).__name__} returned no attention weights: it has none, or has to be "
            'loaded with attn_implementation="eager"'
        )
    for layer, weights in enumerate(attentions):
        recorder.weights(f"attentions.{layer}", weights)


def _forward(network: PreTrainedModel, arguments: Mapping[str, Any]) -> Any:
    try:
        return network(**arguments)
    except UserError:
        raise
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"{type(network).__name__} cannot run on these inputs in {network.dtype}: {reason}"
        ) from error


def _eager_function(module: torch.nn.Module) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    function: Callable[..., tuple[torch.Tensor, torch.Tensor]] | None = getattr(
        sys.modules[type(module).__module__], "eager_attention_forward", None
    )
    if function is None:
        raise UserError(
            f"{type(module).__name__} has no eager attention function to record through"
        )
    return function


def _follows_interface(network: PreTrainedModel) -> bool:
    """Whether every modeling file used has an eager attention function behind the interface."""
    from transformers import PreTrainedModel

    models = [m for m in network.modules() if isinstance(m, PreTrainedModel)]
    return all(m._can_set_attn_implementation() for m in models) and any(
        hasattr(sys.modules[type(m).__module__], "eager_attention_forward")
        for m in network.modules()
    )


def _refuse_unknown(name: str, arguments: Mapping[str, Any]) -> None:
    for argument, value in arguments.items():
        if value is None or argument in _HARMLESS or argument == "position_bias":
            continue
        if argument == "dropout" and not value:
            continue
        what = _REFUSED.get(argument, "an argument that may change the logits")
        raise UserError(
            f"{name} passes {argument} ({what}) to its attention: it cannot be recorded"
        )


def _bias(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    position_bias: torch.Tensor | None,
) -> torch.Tensor | None:
    """What is added to the logits, four axes, minus infinity where masked; None if nothing is."""
    terms = [term for term in (mask, position_bias) if term is not None]
    if not terms:
        return None
    total = reduce(torch.add, (_additive(term[..., : key.shape[2]], query.dtype) for term in terms))
    total = total.reshape((1,) * (4 - total.dim()) + tuple(total.shape))
    total = total.expand(-1, -1, query.shape[2], key.shape[2])
    return total if torch.any(total != 0) else None


def _additive(term: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if term.dtype == torch.bool:
        zero = torch.zeros((), dtype=dtype, device=term.device)
        return torch.where(term, zero, -torch.inf)
    # Masks hold the most negative number of their dtype where nothing may be seen.
    return torch.where(term <= torch.finfo(term.dtype).min / 2, -torch.inf, term)


def _compare(
    name: str,
    query: torch.Tensor,
    key: torch.Tensor,
    scale: float,
    bias: torch.Tensor | None,
    weights: torch.Tensor,
) -> None:
    """Refuse weights that are not, up to rounding, the softmax of what was recorded."""
    if weights.shape[-1] != key.shape[2]:
        raise UserError(
            f"{name} has {weights.shape[-1]} attention weights for {key.shape[2]} keys: "
            "its attention adds keys that cannot be recorded"
        )
    q, k = query.double(), key.double().repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    logits = scale * (q @ k.mT)
    size = abs(scale) * (q.abs() @ k.abs().mT).amax()
    if bias is not None:
        logits = logits + bias.double()
        size = size + bias.double().masked_fill(bias == -torch.inf, 0).abs().amax()
    if not torch.isfinite(size):
        raise UserError(f"{name} has queries or keys that are not finite: try a wider dtype")
    seen = torch.isfinite(logits).any(dim=-1, keepdim=True)
    if not torch.isfinite(weights[~seen.expand_as(weights)]).all():
        raise UserError(
            f"{name}: a query attends to no key and its weights are NaN: remove the padding"
        )
    _refuse_nan(name, weights)
    expected = torch.softmax(torch.where(seen, logits, 0), dim=-1)
    found = torch.where(seen, weights.double() - expected, 0).abs().sum(dim=-1).amax()
    # Some layers take the softmax in float32 whatever the dtype of their inputs.
    unit = max(torch.finfo(weights.dtype).eps, torch.finfo(torch.float32).eps)
    allowed = 8 * unit * (query.shape[-1] + weights.shape[-1] + float(size))
    if not float(found) <= allowed:
        raise UserError(
            f"{name}: the model's weights differ from the softmax of its recorded logits by "
            f"{float(found):.2g} in row-l1 norm (rounding explains {allowed:.2g}): its attention "
            "does something that the interface does not show"
        )


def _refuse_nan(name: str, weights: torch.Tensor) -> None:
    if not bool(torch.isfinite(weights).all()):
        raise UserError(f"{name} has attention weights that are not finite: try a wider dtype")


# --- models and inputs --------------------------------------------------------------------------


def package_folder(name: str) -> Path:
    """The folder ``PACKAGE/FOLDER`` inside an installed package, which is not imported.

    Raises ``UserError`` if there is no such package or folder.
    """
    package, _, inside = name.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"package {package} is not installed: pip install {package.replace('_', '-')}"
        )
    folder = Path(spec.submodule_search_locations[0]) / inside
    if not folder.is_dir():
        raise UserError(f"package {package} has no folder {inside!r}")
    return folder


def _load(model: str, dtype: str) -> PreTrainedModel:
    from transformers import AutoModel
    from transformers.utils import logging

    if dtype not in DTYPES:
        raise UserError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    location = _location(model)
    try:
        network: PreTrainedModel = AutoModel.from_pretrained(
            location, dtype=DTYPES[dtype], attn_implementation="eager", local_files_only=True
        )
    except (OSError, ValueError, KeyError) as error:
        if not Path(location).is_dir():
            raise UserError(
                f"{model} is no folder here, and no model of that name has been downloaded; "
                "accepted: a model folder, package:NAME/FOLDER, or a hub name in the local cache"
            ) from error
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"model {model} cannot be loaded: {reason}") from error
    return network


def _location(model: str) -> str:
    prefix = "package:"
    return str(package_folder(model.removeprefix(prefix))) if model.startswith(prefix) else model


def _name(model: str | Path | PreTrainedModel) -> str:
    if not isinstance(model, str | Path):
        return model.name_or_path or type(model).__name__
    return Path(model).name if Path(model).is_dir() else str(model)


def _arguments(model: str, inputs: Inputs, tokens: int | None) -> dict[str, torch.Tensor]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    ids = _tokenise(model, inputs) if isinstance(inputs, str) else list(inputs)
    if not ids[:tokens]:
        raise UserError("the input has no tokens: at least one is needed")
    return {"input_ids": torch.tensor([ids[:tokens]])}


def _tokenise(model: str, text: str) -> list[int]:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(_location(model), local_files_only=True)
    except (OSError, ValueError) as error:
        raise UserError(
            f"model {model} has no tokenizer: give token ids instead of text"
        ) from error
    ids: list[int] = tokenizer(text)["input_ids"]
    return ids


def _module_names(network: PreTrainedModel) -> dict[int, str]:
    return {id(module): name for name, module in network.named_modules()}


def _weights_hash(network: PreTrainedModel) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy())
    return f"sha256:{digest.hexdigest()}"


def _listed(ids: torch.Tensor | None) -> list[Any] | None:
    return None if ids is None else ids.tolist()


@contextmanager
def _quiet_inference(network: PreTrainedModel) -> Iterator[None]:
    """No gradients and no dropout; the training flag is put back."""
    training = network.training
    network.train(False)
    try:
        with torch.inference_mode():
            yield
    finally:
        network.train(training)
