"""Features of every family: what is replayed is what the model would have computed."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from bermo_ray import cache
from bermo_ray import trial as spec
from bermo_ray.models import assembly, heads
from bermo_ray.tasks.encoded import Encoded, Ragged
from bermo_ray.training import features
from bermo_ray.training.contribution import contribution
from bermo_ray.trial import Trial
from tests.models.test_families import FAMILIES, folder, task  # noqa: F401

ROWS = [[5, 6, 7, 8, 9, 10], [11, 12, 13], [14, 15, 16, 17]]
CPU = torch.device("cpu")


def ragged(rows: list[list[int]]) -> Ragged:
    return Ragged.of(pa.array(rows, pa.large_list(pa.int32())))


@pytest.mark.parametrize("head", ["sequence", "token"])
@pytest.mark.parametrize("name", ["last", "bermo", "dwatt", "extra_layers"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_replay_is_the_model(
    folder: Any,  # noqa: F811
    family: str,
    name: str,
    head: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, "off")
    trial = Trial(backbone=folder(family, head), fusion=spec.Fusion(name=name))
    built = assembly.build(trial, task(head))
    data = Encoded(
        task=task(head),
        inputs={"input_ids": ragged(ROWS)},
        targets={
            "labels": np.arange(3) if head == "sequence" else ragged([[0] * len(r) for r in ROWS])
        },
        rows=np.arange(3),
        pad_id=0,
        pad_left=family == "xlnet",
    )
    layers = built.fusion.needs()
    assert layers is not None
    built.model.eval()
    with torch.no_grad():
        batch = data.batch([0, 1, 2])
        del batch["labels"]
        expected = heads.logits(built.model(**batch))[0]
        cut = features.prepare(built, data, 8, CPU)
        given = cut.batch([0, 1, 2])
        del given["labels"]
        found = heads.logits(features.Replay(built, layers).eval()(**given))[0]
    one_token = head == "sequence" and name != "extra_layers"
    assert (given["input_ids"].shape[1] == 1) == one_token
    if head == "token":  # padding's own logits are nobody's
        inside = batch["attention_mask"].bool()
        found, expected = found[inside], expected[inside]
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_contribution_is_of_the_sentence_token(
    folder: Any,  # noqa: F811
    family: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first token; of XLNet, which pads in front, the last. Padding changes nothing."""
    monkeypatch.setenv(cache.CACHE_VARIABLE, "off")
    built = assembly.build(Trial(backbone=folder(family, "sequence")), task("sequence"))
    left = family == "xlnet"
    data = Encoded(
        task=task("sequence"),
        inputs={"input_ids": ragged(ROWS)},
        targets={"labels": np.arange(3)},
        rows=np.arange(3),
        pad_id=0,
        pad_left=left,
    )
    expected = np.zeros(built.stack.depth)
    built.model.eval()
    with torch.no_grad():
        for row in ROWS:
            ids = torch.tensor([row])
            states = built.model(ids, output_hidden_states=True).hidden_states
            own = [state[0, -1 if left else 0] for state in states]
            # Some families normalise the last state after its layer.
            pairs = list(pairwise(own))
            expected += [float(torch.cosine_similarity(a, b, dim=0)) for a, b in pairs]
    found = contribution(built, data, 8, CPU)
    same = slice(None, -1) if family == "modernbert" else slice(None)
    assert found[same] == pytest.approx((expected / 3)[same], abs=1e-4)
