"""Options that several verbs of the command line share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MatrixFile = Annotated[
    Path, typer.Argument(help="A matrix: .npy, .npz, .safetensors or .pt; or a capture.")
]
OBJECT_HELP = "What FILE holds, or which object of a capture: matrix, logits or qk."
Object = Annotated[str, typer.Option(help=OBJECT_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and no tables.")]
Key = Annotated[str | None, typer.Option(help="Name of the tensor in the file.")]
Layer = Annotated[int | None, typer.Option(help="Layer, counted from 0.")]
Head = Annotated[int | None, typer.Option(help="Head of the layer, counted from 0.")]
Prefix = Annotated[
    int | None,
    typer.Option(help="Of a causal captured head: late queries against so many early keys."),
]
Scale = Annotated[str, typer.Option(help="For qk: the factor of Q K^T.")]
OverSqrt = Annotated[int, typer.Option(help="For qk: d, to divide Q K^T by sqrt(d).")]
Epsilon = Annotated[str, typer.Option(help='The tolerance, such as "1/4" or "0.25".')]
