"""Features of every family: what is replayed is what the model would have computed."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from bermo_ray import cache
from bermo_ray import trial as spec
from bermo_ray.tasks.encoded import EncodedRows, Ragged
from bermo_ray.training import features
from bermo_ray.training.contribution import layer_similarity
from bermo_ray.training.model import build_model
from bermo_ray.trial import Trial
from tests.support.families import FAMILIES, task_of

ROWS = [[5, 6, 7, 8, 9, 10], [11, 12, 13], [14, 15, 16, 17]]
CPU = torch.device("cpu")


def ragged(rows: list[list[int]]) -> Ragged:
    return Ragged.of(pa.array(rows, pa.large_list(pa.int32())))


@pytest.mark.parametrize("head", ["sequence", "token"])
@pytest.mark.parametrize("name", ["last", "bermo", "dwatt", "extra_layers"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_replay_is_the_model(
    family_folder: Any,
    family: str,
    name: str,
    head: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, "off")
    trial = Trial(backbone=family_folder(family, head), fusion=spec.Fusion(name=name))
    model = build_model(trial, task_of(head))
    data = EncodedRows(
        task=task_of(head),
        inputs={"input_ids": ragged(ROWS)},
        gold={
            "labels": np.arange(3) if head == "sequence" else ragged([[0] * len(r) for r in ROWS])
        },
        row_numbers=np.arange(3),
        pad_id=0,
        pad_left=family == "xlnet",
    )
    states = model.fusion.states_read()
    assert states is not None
    network = model.network.eval()
    with torch.no_grad():
        batch = data.batch([0, 1, 2])
        del batch["labels"]
        expected = network(**batch).logits
        replay_batch = features.with_states(model, data, 8, CPU).batch([0, 1, 2])
        del replay_batch["labels"]
        replayed = features.ReplayNetwork(model, states).eval()(**replay_batch).logits
    one_token = head == "sequence" and name != "extra_layers"
    assert (replay_batch["input_ids"].shape[1] == 1) == one_token
    if head == "token":  # padding's own logits are nobody's
        inside = batch["attention_mask"].bool()
        replayed, expected = replayed[inside], expected[inside]
    assert torch.allclose(replayed, expected, atol=1e-5)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_similarity_is_of_the_sentence_token(
    family_folder: Any,
    family: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first token; of XLNet, which pads in front, the last. Padding changes nothing."""
    monkeypatch.setenv(cache.CACHE_VARIABLE, "off")
    model = build_model(Trial(backbone=family_folder(family, "sequence")), task_of("sequence"))
    left = family == "xlnet"
    data = EncodedRows(
        task=task_of("sequence"),
        inputs={"input_ids": ragged(ROWS)},
        gold={"labels": np.arange(3)},
        row_numbers=np.arange(3),
        pad_id=0,
        pad_left=left,
    )
    expected = np.zeros(model.stack.depth)
    model.network.eval()
    with torch.no_grad():
        for row in ROWS:
            ids = torch.tensor([row])
            states = model.network(ids, output_hidden_states=True).hidden_states
            tokens = [state[0, -1 if left else 0] for state in states]
            # Some families normalise the last state after its layer.
            pairs = list(pairwise(tokens))
            expected += [float(torch.cosine_similarity(a, b, dim=0)) for a, b in pairs]
    similarity = layer_similarity(model, data, 8, CPU)
    same = slice(None, -1) if family == "modernbert" else slice(None)
    assert similarity[same] == pytest.approx((expected / 3)[same], abs=1e-4)
