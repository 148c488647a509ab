"""The shipped encoder: loads offline with stock classes, and its pretraining matters."""

import math
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import bermo_ray
from bermo_ray.language.tasks import TASKS, generate

FOLDER = Path(bermo_ray.__path__[0]) / "language" / "encoder"
PARAMETERS = 1_384_546
LAYERS = (1, 3)
MASKED_FLOOR = 0.24  # measured: 0.277
Features = np.ndarray[tuple[int, int], np.dtype[np.float32]]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(FOLDER)


def features(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str]
) -> Features:
    """The mean over tokens of the hidden states of some layers, side by side."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i].split()))
    means = np.zeros((len(texts), len(LAYERS) * model.config.hidden_size), np.float32)
    with torch.inference_mode():
        for start in range(0, len(order), 125):
            chosen = order[start : start + 125]
            inputs = tokenizer([texts[i] for i in chosen], padding=True, return_tensors="pt")
            hidden = model(**inputs, output_hidden_states=True).hidden_states
            stacked = torch.cat([hidden[layer] for layer in LAYERS], dim=-1)
            weight = inputs["attention_mask"][:, :, None].float()
            means[chosen] = ((stacked * weight).sum(1) / weight.sum(1)).numpy()
    return means


def probe(train: Features, train_labels: list[int], test: Features, labels: list[int]) -> float:
    scaler = StandardScaler().fit(train)
    classifier = LogisticRegression(C=0.05, max_iter=100, tol=1e-3)
    with threadpool_limits(1):  # so small a fit loses more than it gains by threads
        classifier.fit(scaler.transform(train), train_labels)
        return float(classifier.score(scaler.transform(test), labels))


def test_files_are_small_and_complete() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert wanted | {"README.md"} <= names
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 4_000_000


def test_architecture() -> None:
    model = AutoModelForMaskedLM.from_pretrained(FOLDER)
    assert type(model).__name__ == "BertForMaskedLM"
    assert model.num_parameters() == PARAMETERS
    assert model.dtype == torch.float32
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    config = model.config
    shape = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
    assert shape == (6, 128, 4)
    assert (config.intermediate_size, config.max_position_embeddings) == (512, 128)
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.1


@pytest.mark.parametrize("name", ["masked_words", "entailment", "answer_span"])
def test_generated_text_is_one_token_per_word(
    name: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    for row in generate(name, "dev", 100, 0).to_pylist():
        for text in (row["text"], row.get("text_pair", row["text"])):
            assert tokenizer.tokenize(text) == text.split()
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.unk_token_id not in ids
            assert " ".join(tokenizer.convert_ids_to_tokens(ids[1:-1])) == text


def test_foreign_words_become_pieces(tokenizer: PreTrainedTokenizerBase) -> None:
    assert tokenizer.tokenize("The Zebra") == ["the", "z", "##e", "##b", "##r", "##a"]
    text = "Quantum-flux capacitors cost $1,024.50 (café)!"
    assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"]


def test_pairs_have_token_types(tokenizer: PreTrainedTokenizerBase) -> None:
    encoded = tokenizer("the dog", "a cat sleeps")
    tokens = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    assert tokens == ["[CLS]", "the", "dog", "[SEP]", "a", "cat", "sleeps", "[SEP]"]
    assert encoded["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert tokenizer.model_max_length == 128


def test_masked_words_are_predicted(tokenizer: PreTrainedTokenizerBase) -> None:
    model = AutoModelForMaskedLM.from_pretrained(FOLDER).eval()
    rng = random.Random(0)
    rows = generate("masked_words", "dev", 1000, 0)["text"].to_pylist()
    hits, golds = 0, Counter[int]()
    with torch.inference_mode():
        for start in range(0, len(rows), 100):
            inputs = tokenizer(rows[start : start + 100], padding=True, return_tensors="pt")
            ids = inputs["input_ids"]
            sizes = inputs["attention_mask"].sum(1).tolist()
            # One masked word per sentence, neither the first and last tokens nor the final stop.
            at = torch.tensor([rng.randrange(1, size - 2) for size in sizes])
            line = torch.arange(len(sizes))
            gold = ids[line, at].clone()
            ids[line, at] = tokenizer.mask_token_id
            guess = model(**inputs).logits[line, at].argmax(-1)
            hits += int((guess == gold).sum())
            golds.update(gold.tolist())
    unigram = golds.most_common(1)[0][1] / len(rows)
    assert unigram < 0.15
    assert hits / len(rows) > MASKED_FLOOR
    assert hits / len(rows) > 4 * unigram


def test_pretraining_matters(tokenizer: PreTrainedTokenizerBase) -> None:
    """Frozen features beat those of the same network at its random start on most probes."""
    torch.manual_seed(0)
    untrained = AutoModel.from_config(AutoConfig.from_pretrained(FOLDER)).eval()
    pretrained = AutoModel.from_pretrained(FOLDER).eval()
    for model in (untrained, pretrained):
        model.encoder.layer = model.encoder.layer[: max(LAYERS)]  # no time for unused layers
    lines, won = [], 0
    for name in tuple(TASKS)[:10]:
        train, test = generate(name, "train", 2000, 0), generate(name, "test", 1000, 0)
        scores = [
            probe(
                features(model, tokenizer, train["text"].to_pylist()),
                train["label"].to_pylist(),
                features(model, tokenizer, test["text"].to_pylist()),
                test["label"].to_pylist(),
            )
            for model in (untrained, pretrained)
        ]
        gain = scores[1] - scores[0]
        error = math.sqrt(sum(s * (1 - s) for s in scores) / 1000)
        clear = gain >= 0.05 and gain > 2 * error
        won += clear
        lines.append(f"{name:24} {scores[0]:.3f} {scores[1]:.3f} {gain:+.3f} {'*' * clear}")
    table = "\n".join(lines)
    print(table)
    assert won >= 6, f"pretraining helps on {won} of 10 probes\n{table}"
