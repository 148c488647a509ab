"""Pretrains the shipped encoder by masked language modelling on the embedded language.

    python -m tools.pretrain_encoder --out bermo_ray/language/encoder

Inputs are sentences of the train split, generated as they are needed, about a third of them in
pairs. Equal options give equal inputs; the weights then depend on the arithmetic of the machine.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

from bermo_ray.language.grammar import Grammar, words
from bermo_ray.language.lexicon import VOCABULARY
from bermo_ray.language.tasks import (
    DITRANSITIVE,
    TRANSITIVE,
    draw_event,
    draw_scene,
    render,
    synonym,
)

SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAIR_SHARE: Final = 0.3
MASK_SHARE: Final = 0.15
MAX_LENGTH: Final = 128
POOL: Final = 64  # batches drawn at once, so that batches of one length can be made from them
Row = tuple[list[int], int]  # token ids, and how many of them are of the first segment


def vocabulary() -> list[str]:
    """Special tokens, every word form, then the pieces that any other word falls back to."""
    letters = string.ascii_lowercase + string.digits
    pieces = [*letters, *string.punctuation, *(f"##{letter}" for letter in letters)]
    return list(dict.fromkeys([*SPECIAL, *VOCABULARY, *pieces]))


def configuration(size: int) -> BertConfig:
    """The architecture, a stock BERT."""
    return BertConfig(
        vocab_size=size,
        hidden_size=128,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=MAX_LENGTH,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )


def related(rng: random.Random, grammar: Grammar, split: str) -> tuple[str, str]:
    """Two texts about the same things: a restatement, what comes next, or a question on it."""
    draw = rng.random()
    if draw < 0.2:
        question, context, _ = draw_scene(rng, split)
        return question, context
    if draw < 0.35:
        sentence = grammar.sentence("coordination")
        first, *_, second = (len(words(c)) for c in sentence.tree[1:] if not isinstance(c, str))
        return f"{' '.join(sentence.words[:first])} .", " ".join(sentence.words[-1 - second :])
    verbs = DITRANSITIVE if rng.random() < 0.15 else TRANSITIVE
    event = draw_event(rng, verbs, split, rng.sample(range(5), rng.randrange(4)))
    other = event
    for role in ("agent", "verb", "patient"):
        other = synonym(other, role) if rng.random() < 0.5 else other
    if rng.random() < 0.4:
        other = replace(other, facts=tuple(f for f in event.facts if rng.random() < 0.5))
    denied = rng.random() < 0.2
    styles = ("active", "passive", "dative")
    a, b = (
        render(one, rng.choice(styles), rng.random() < 0.3, denied)
        for one in rng.sample((event, other), 2)
    )
    return a, b


def rows(split: str, seed: int) -> Iterator[Row]:
    """An endless stream of encoded inputs; words are looked up, as every one is a token."""
    index = {word: i for i, word in enumerate(vocabulary())}
    grammar, rng = Grammar(split, seed), random.Random(f"pairs/{split}/{seed}")
    start, end = index["[CLS]"], index["[SEP]"]
    while True:
        if rng.random() < PAIR_SHARE:
            a, b = ([index[w] for w in text.split()] for text in related(rng, grammar, split))
            yield [start, *a, end, *b, end], len(a) + 2
        else:
            ids = [start, *(index[w] for w in grammar.sentence().words), end]
            yield ids, len(ids)


def batches(split: str, seed: int, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Ids, token types and attention masks, in batches of nearly one length, in random order."""
    source, rng = rows(split, seed), random.Random(f"order/{seed}")
    while True:
        pool = sorted((next(source) for _ in range(size * POOL)), key=lambda row: len(row[0]))
        starts = list(range(0, len(pool), size))
        rng.shuffle(starts)
        for start in starts:
            chosen = pool[start : start + size]
            width = len(chosen[-1][0])
            ids = torch.tensor([row + [0] * (width - len(row)) for row, _ in chosen])
            first = torch.tensor([length for _, length in chosen])[:, None]
            attention = (ids != 0).long()
            types = (torch.arange(width)[None, :] >= first).long() * attention
            yield ids, types, attention


def mask(ids: Tensor, generator: torch.Generator, size: int) -> tuple[Tensor, Tensor]:
    """The masked ids and which positions count: 15 %, of them 80/10/10 masked, random, kept."""
    draw = torch.rand(ids.shape, generator=generator)
    chosen = (draw < MASK_SHARE) & (ids >= len(SPECIAL))
    how = torch.rand(ids.shape, generator=generator)
    other = torch.randint(len(SPECIAL), size, ids.shape, generator=generator)
    masked = ids.masked_fill(chosen & (how < 0.8), SPECIAL.index("[MASK]"))
    return torch.where(chosen & (how >= 0.9), other, masked), chosen


def scores(model: BertForMaskedLM, batch: tuple[Tensor, ...], chosen: Tensor) -> Tensor:
    """Logits at the chosen positions only; the head is not computed for any other."""
    ids, types, attention = batch
    hidden = model.bert(input_ids=ids, token_type_ids=types, attention_mask=attention)
    logits: Tensor = model.cls(hidden.last_hidden_state[chosen])
    return logits


def evaluate(model: BertForMaskedLM, count: int) -> tuple[float, float]:
    """Loss and accuracy over the masked words of fixed inputs of the dev split."""
    source, generator = batches("dev", 0, 64), torch.Generator().manual_seed(0)
    loss = hits = total = 0.0
    model.eval()
    with torch.inference_mode():
        for _ in range(count // 64):
            ids, types, attention = next(source)
            masked, chosen = mask(ids, generator, model.config.vocab_size)
            logits, gold = scores(model, (masked, types, attention), chosen), ids[chosen]
            loss += cross_entropy(logits, gold, reduction="sum").item()
            hits += (logits.argmax(-1) == gold).sum().item()
            total += gold.numel()
    return loss / total, hits / total


def train(steps: int, batch: int, peak: float, seed: int) -> tuple[BertForMaskedLM, float, float]:
    """A pretrained model with its final dev loss and accuracy."""
    torch.manual_seed(seed)
    size = len(vocabulary())
    model = BertForMaskedLM(configuration(size))
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.98), fused=True)
    warm = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warm, (steps - s) / max(1, steps - warm))
    )
    generator = torch.Generator().manual_seed(seed)
    source, began = batches("train", seed, batch), time.perf_counter()
    model.eval()  # no dropout: the data never repeats, so there is nothing to overfit
    for step in range(1, steps + 1):
        ids, types, attention = next(source)
        masked, chosen = mask(ids, generator, size)
        loss = cross_entropy(scores(model, (masked, types, attention), chosen), ids[chosen])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 20) == 0 or step == steps:
            dev, accuracy = evaluate(model, 1024)
            spent = time.perf_counter() - began
            print(
                f"step {step}/{steps}  {spent:.0f} s  {step * batch / spent:.0f} inputs/s  "
                f"dev loss {dev:.3f}  masked accuracy {accuracy:.3f}",
                flush=True,
            )
    return model, *evaluate(model, 4096)


CARD: Final = """---
license: apache-2.0
library_name: transformers
pipeline_tag: fill-mask
---

# Embedded encoder

A {parameters:,}-parameter BERT (6 layers, width 128, 4 heads, feed-forward 512, 128 positions) with
a vocabulary of {size:,} pieces, pretrained on the embedded language: an artificial, English-like
language that a grammar of this repository generates.

It is there to exercise compression methods in minutes, offline, on an encoder whose pretraining
matters. It is not a model of English: text outside the language falls back to single letters, and
its numbers say nothing about English tasks.

- Data: {inputs:,} inputs of the train split, generated once each; 30 % are pairs of related texts.
- Objective: masked language modelling, 15 % of the words, 80/10/10, masks drawn anew; no dropout.
- AdamW, peak rate {peak:g}, 5 % warm-up, linear decay; {steps:,} steps of {batch} inputs.
- Dev split: loss {loss:.3f}, accuracy {accuracy:.3f} on masked words.
- Weights are stored as float16 and load as float32. Licence: Apache-2.0.

Made by:

    python -m tools.pretrain_encoder --steps {steps} --batch {batch} --rate {peak:g} \\
        --seed {seed} --out bermo_ray/language/encoder
"""


def save(model: BertForMaskedLM, folder: Path) -> None:
    """Writes weights as float16, the configuration and the tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {piece: i for i, piece in enumerate(vocabulary())}
    tokenizer = BertTokenizerFast(
        vocab=vocab, do_lower_case=True, model_max_length=MAX_LENGTH, strip_accents=True
    )
    tokenizer.save_pretrained(folder)
    model.half().save_pretrained(folder)
    # Half precision is for the size of the files only; on CPU it is slow, so it loads as float32.
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"dtype": "float32"}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "model.safetensors").chmod(0o644)


def main() -> None:
    """Reads the options, trains, and writes the folder with its model card."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=6000, help="optimiser steps (default 6000)")
    parser.add_argument("--batch", type=int, default=128, help="inputs per step (default 128)")
    parser.add_argument("--rate", type=float, default=1e-3, help="peak rate (default 1e-3)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, inputs and masks")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch (default 2)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    options = parser.parse_args()
    if options.steps < 1 or options.batch < 1:
        parser.error("--steps and --batch must be at least 1")
    torch.set_num_threads(options.threads)
    model, loss, accuracy = train(options.steps, options.batch, options.rate, options.seed)
    card = CARD.format(
        parameters=model.num_parameters(),
        size=model.config.vocab_size,
        inputs=options.steps * options.batch,
        peak=options.rate,
        loss=loss,
        accuracy=accuracy,
        **{name: getattr(options, name) for name in ("steps", "batch", "seed")},
    )
    save(model, options.out)
    (options.out / "README.md").write_text(card)
    print(f"dev loss {loss:.4f}, masked accuracy {accuracy:.4f}; written to {options.out}")


if __name__ == "__main__":
    main()
