"""Encoders in folders as sentence-transformers writes them."""

import json
import shutil
from pathlib import Path
from typing import Any


def sentence_folder(encoder: str, folder: Path, pooling: dict[str, Any], path: str = "") -> str:
    """The encoder as sentence-transformers keeps it."""
    shutil.copytree(encoder, folder / path, dirs_exist_ok=True)
    kinds = {"Pooling": (1, "1_Pooling"), "Transformer": (0, path), "Normalize": (2, "2_Normalize")}
    modules = [
        {"idx": number, "path": place, "type": f"sentence_transformers.models.{kind}"}
        for kind, (number, place) in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return str(folder)


def switches(mode: str) -> dict[str, Any]:
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    keys = {f"pooling_mode_{name}": name == mode for name in names}
    return keys | {"word_embedding_dimension": 16}
